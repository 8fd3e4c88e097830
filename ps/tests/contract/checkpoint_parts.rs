//! Checkpoints that are read from the disks of shards, without these.

use std::{collections::BTreeMap, fs, path::PathBuf};

use safetensors::SafeTensors;
use syncline_ps::checkpoint_parts::{FoundCheckpoint, ShardParts, WriteFault, find_checkpoints};

use super::{
    checkpoint::{crash, keep_as, opened, path_of, push_all, values},
    rig::{FIRST, Rig, job, layout},
};

/// What lies below the folder of all shards.
fn found(rig: &Rig) -> Vec<FoundCheckpoint> {
    find_checkpoints(&[rig.dir.path().to_owned()], None).checkpoints
}

fn weights(found: &FoundCheckpoint) -> Vec<u8> {
    let mut file = Vec::new();
    found.write_weights(&mut file).unwrap();
    file
}

/// Three checkpoints, of which the third one lacks a part, and the values of the second one.
fn three(rig: &mut Rig) -> Vec<f32> {
    opened(rig);
    keep_as(rig, 0);
    push_all(rig, FIRST, &[1, 2]);
    keep_as(rig, 7);
    let then = values(rig, FIRST);
    keep_as(rig, 8);
    fs::remove_file(path_of(rig, 1, 8)).unwrap();
    crash(rig);
    then
}

#[test]
fn the_weights_of_a_checkpoint_are_read_from_the_disks_of_all_shards() {
    let mut rig = Rig::start(2);
    let then = three(&mut rig);
    let found = found(&rig);
    let about: Vec<_> = found.iter().map(|found| (&found.job, found.number, found.fault())).collect();
    let missing = Some("no part of shard 1/2 is here".to_owned());
    assert_eq!(about, [(&job(), 0, None), (&job(), 7, None), (&job(), 8, missing)]);
    assert_eq!(found[2].shards(), Some(ShardParts { count: 2, missing: vec![1] }));
    assert_eq!((found[1].elements(), found[1].folder_name()), (then.len() as u64, "digits-00000000".into()));
    assert!(found[1].files().eq([path_of(&rig, 0, 7), path_of(&rig, 1, 7)]));

    let file = weights(&found[1]);
    let (_, head) = SafeTensors::read_metadata(&file).unwrap();
    let about: BTreeMap<_, _> = head.metadata().clone().unwrap().into_iter().collect();
    assert_eq!(about, [("checkpoint", "7"), ("job", "digits")].map(|(k, v)| (k.into(), v.into())).into());
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let names: Vec<_> = layout(then.len() as u64).0.into_iter().map(|parameter| parameter.name).collect();
    let values: Vec<u8> =
        names.iter().flat_map(|name| tensors.tensor(name).unwrap().data().to_vec()).collect();
    assert!(values == bytemuck::cast_slice::<f32, u8>(&then));
}

#[test]
fn a_part_that_is_damaged_is_none_and_one_that_a_standby_has_takes_its_place() {
    let mut rig = Rig::start(2);
    three(&mut rig);
    let (whole, standby) = (fs::read(path_of(&rig, 1, 7)).unwrap(), rig.dir.path().join("standby"));
    let folders = [rig.dir.path().to_owned()];
    for harm in [0, 12, 40, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[harm] ^= 1;
        fs::write(path_of(&rig, 1, 7), bytes).unwrap();
        let found = find_checkpoints(&folders, None);
        let unusable: Vec<&PathBuf> = found.unusable.iter().map(|(path, _)| path).collect();
        assert_eq!(unusable, [&path_of(&rig, 1, 7)], "{harm}");
        assert_eq!(found.checkpoints[1].fault().as_deref(), Some("no part of shard 1/2 is here"), "{harm}");
    }
    fs::create_dir(&standby).unwrap();
    fs::write(standby.join("7.checkpoint"), &whole).unwrap();
    let found = find_checkpoints(&folders, None);
    assert_eq!((found.checkpoints[1].fault(), found.unusable.len()), (None, 1));
    // The disk gives something else the next time.
    fs::write(standby.join("7.checkpoint"), &whole[..whole.len() / 2]).unwrap();
    let fault = found.checkpoints[1].write_weights(&mut Vec::new()).unwrap_err();
    assert!(
        matches!(&fault, WriteFault::Part(path, _) if *path == standby.join("7.checkpoint")),
        "{fault:?}"
    );
}

#[test]
fn parts_of_another_number_of_shards_are_not_mixed_and_other_jobs_are_not_looked_at() {
    let (mut rig, other) = (Rig::start(2), Rig::start(3));
    three(&mut rig);
    opened(&other);
    keep_as_three(&other, 7);
    fs::copy(path_of(&other, 1, 7), rig.dir.path().join("0/7.checkpoint")).unwrap();
    let fault = found(&rig)[1].fault().unwrap();
    assert!(fault.contains("7.checkpoint does not fit its other parts"), "{fault}");
    let folders = [rig.dir.path().to_owned()];
    assert_eq!(find_checkpoints(&folders, Some(&"other".parse().unwrap())).checkpoints.len(), 0);
    assert_eq!(find_checkpoints(&folders, Some(&job())).checkpoints.len(), 3);
}

fn keep_as_three(rig: &Rig, number: u64) {
    for shard in 0..3 {
        rig.pin_checkpoint(shard, number).unwrap();
        rig.write_checkpoint(shard, number).unwrap();
    }
}
