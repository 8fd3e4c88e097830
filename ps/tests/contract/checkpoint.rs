//! Checkpoints: what a copy holds, and a new generation that begins with one after a crash.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use super::rig::{EPOCH, FIRST, ROUND, Rig, UNIT, layout, run};
use syncline_ps::{
    checkpoint_file::{CheckpointAbout, write_checkpoint_file},
    codec::Codec,
    content::digest_of,
    shard::{PushHeader, ReadCondition},
};
use syncline_rpc::{FolderGc, Forgotten, OpenJob, Retention, ShardFault, ShardState};
use syncline_scheduler::{
    ids::{ContentDigest, EngineEpoch, Generation},
    samples::SamplePosition,
    spec::{Optimizer, ResumeSpec, StepRun},
};

/// Three chunks and a bit on each of two shards.
const ELEMENTS: u64 = 6 * 65_536 + 2000;
const SECOND: Generation = Generation(2);
const ADAM: Optimizer =
    Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
const RATE: PushHeader = PushHeader { learning_rate: 0.1, ..UNIT };

fn thin(keep: &[u64], through: u64) -> Retention {
    Retention::Thin { keep: keep.to_vec(), through }
}

fn last(keep: &[u64]) -> Retention {
    Retention::Last { keep: keep.to_vec() }
}

fn gradient(n: u64) -> Vec<f32> {
    (0..ELEMENTS).map(|i| ((i * 31 + n * 17) % 97) as f32 / 50.0 - 1.0).collect()
}

pub fn opened(rig: &Rig) -> ContentDigest {
    let initial = rig.blob(&gradient(0));
    rig.open(FIRST, ELEMENTS, ADAM, &initial).into_iter().for_each(|open| drop(open.unwrap()));
    initial
}

/// Pushes these gradients one after the other as a worker of a generation.
pub fn push_all(rig: &Rig, generation: Generation, gradients: &[u64]) {
    let mut worker = rig.worker_of(generation, 1, ELEMENTS);
    // What an encoding keeps back is the worker's, and in no checkpoint.
    worker.compress_pushes(Codec::Plain, ELEMENTS);
    for (seq, n) in (1..).zip(gradients) {
        worker.push(seq, RATE, &[&gradient(*n)]).unwrap();
    }
}

pub fn values(rig: &Rig, generation: Generation) -> Vec<f32> {
    let mut values = vec![f32::NAN; ELEMENTS as usize];
    rig.worker_of(generation, 9, ELEMENTS).pull(ReadCondition::version(0), &mut values).unwrap();
    values
}

pub fn keep_as(rig: &Rig, number: u64) {
    for shard in 0..2 {
        rig.pin_checkpoint(shard, number).unwrap();
        assert!(rig.write_checkpoint(shard, number).unwrap() > 3 * ELEMENTS / 2 * 4);
    }
}

/// Every shard loses what it has in memory.
pub fn crash(rig: &mut Rig) {
    let places: Vec<_> = rig.shards.iter().map(|s| s.address()).collect();
    std::mem::take(&mut rig.shards).into_iter().for_each(|shard| shard.stop());
    rig.start_again(&places);
}

fn restore(rig: &Rig, shard: u32, number: u64, initial: &ContentDigest) -> Result<ShardState, ShardFault> {
    let order = rig.order(shard, ELEMENTS, initial);
    let order = OpenJob { run: run(SECOND), optimizer: ADAM, checkpoint: Some(number), ..order };
    rig.open_one(EPOCH, order)
}

pub fn path_of(rig: &Rig, shard: u32, number: u64) -> PathBuf {
    rig.dir.path().join(format!("{shard}/checkpoints/digits-00000000/{number}.checkpoint"))
}

#[test]
fn what_goes_on_behind_a_crash_ends_in_the_same_bits_as_what_never_stopped() {
    let unbroken = Rig::start(2);
    opened(&unbroken);
    push_all(&unbroken, FIRST, &[1, 2, 3, 4]);

    let mut rig = Rig::start(2);
    let initial = opened(&rig);
    push_all(&rig, FIRST, &[1, 2]);
    (0..2).for_each(|shard| rig.pin_checkpoint(shard, 7).unwrap());
    // The copy is older than what is pushed before it is written, and a repeated order copies nothing anew.
    (0..2).for_each(|shard| rig.pin_checkpoint(shard, 7).unwrap());
    rig.exact_worker(1, ELEMENTS).push(3, RATE, &[&gradient(50)]).unwrap();
    (0..2).for_each(|shard| assert!(rig.write_checkpoint(shard, 7).is_ok()));
    crash(&mut rig);
    for shard in 0..2 {
        let state = restore(&rig, shard, 7, &initial).unwrap();
        assert_eq!((state.generation, state.progress.closed, state.pushes), (SECOND, 0, 0));
        assert!(state.progress.watermarks.is_empty(), "{state:?}");
    }
    push_all(&rig, SECOND, &[3, 4]);
    assert!(values(&rig, SECOND) == values(&unbroken, FIRST));
}

#[test]
fn a_shard_that_lost_nothing_goes_back_with_the_others_and_refuses_the_life_before() {
    let rig = Rig::start(2);
    let initial = opened(&rig);
    push_all(&rig, FIRST, &[1]);
    let then = values(&rig, FIRST);
    keep_as(&rig, 0);
    let mut late = rig.worker(1, ELEMENTS);
    late.push(2, RATE, &[&gradient(2)]).unwrap();
    (0..2).for_each(|shard| drop(restore(&rig, shard, 0, &initial).unwrap()));
    assert_eq!(late.push(3, RATE, &[&gradient(3)]).unwrap_err().code(), "E403");
    assert!(values(&rig, SECOND) == then);
}

#[test]
fn a_job_with_an_open_round_is_not_at_rest() {
    let rig = Rig::start(2);
    opened(&rig);
    rig.worker(1, ELEMENTS).push(1, ROUND, &[&gradient(1)]).unwrap();
    assert!(
        matches!(rig.pin_checkpoint(0, 0), Err(ShardFault::Invalid { what }) if what.contains("at rest"))
    );
    rig.barrier(0, 0, &[(1, 1)], false);
    rig.pin_checkpoint(0, 0).unwrap();
}

#[test]
fn a_copy_that_was_not_written_is_gone_with_its_process_and_an_old_engine_takes_none() {
    let mut rig = Rig::start(2);
    let initial = opened(&rig);
    (0..2).for_each(|shard| rig.pin_checkpoint(shard, 3).unwrap());
    rig.restart();
    assert!(matches!(rig.write_checkpoint(0, 3), Err(ShardFault::NoCheckpoint { number: 3, .. })));
    assert!(matches!(restore(&rig, 0, 3, &initial), Err(ShardFault::NoCheckpoint { number: 3, .. })));
    rig.attach(0, EngineEpoch(7)).unwrap();
    assert!(matches!(rig.pin_checkpoint(0, 4), Err(ShardFault::Fenced { .. })));
}

#[test]
fn a_checkpoint_that_is_damaged_or_of_another_job_is_refused() {
    let mut rig = Rig::start(2);
    let initial = opened(&rig);
    keep_as(&rig, 1);
    crash(&mut rig);
    let whole = fs::read(path_of(&rig, 0, 1)).unwrap();
    let mode = fs::metadata(path_of(&rig, 0, 1)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for harm in [0, 40, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[harm] ^= 1;
        fs::write(path_of(&rig, 0, 1), bytes).unwrap();
        let refused = restore(&rig, 0, 1, &initial).unwrap_err();
        assert!(matches!(refused, ShardFault::NoCheckpoint { .. }), "{harm}");
        let (text, file) = (refused.to_string(), path_of(&rig, 0, 1).display().to_string());
        assert!(text.contains("shard s0") && text.contains(&file), "{text}");
    }
    fs::write(path_of(&rig, 0, 1), &whole[..whole.len() - 100]).unwrap();
    assert!(matches!(restore(&rig, 0, 1, &initial), Err(ShardFault::NoCheckpoint { .. })));
    fs::write(path_of(&rig, 0, 1), whole).unwrap();
    let order = OpenJob {
        run: run(SECOND),
        optimizer: ADAM,
        checkpoint: Some(1),
        ..rig.order(0, ELEMENTS, &initial)
    };
    let others = [
        OpenJob { optimizer: Optimizer::Sgd { weight_decay: 0.0 }, ..order.clone() },
        OpenJob { layout: layout(ELEMENTS - 2), ..order.clone() },
    ];
    for other in others {
        assert!(matches!(rig.open_one(EPOCH, other), Err(ShardFault::NoCheckpoint { .. })));
    }
    rig.open_one(EPOCH, order).unwrap();
}

#[test]
fn of_a_checkpoint_in_the_folder_of_another_shard_it_is_said_whose_it_is() {
    let mut rig = Rig::start(2);
    let initial = opened(&rig);
    keep_as(&rig, 1);
    crash(&mut rig);
    fs::copy(path_of(&rig, 1, 1), path_of(&rig, 0, 1)).unwrap();
    let refused = restore(&rig, 0, 1, &initial).unwrap_err().to_string();
    assert!(refused.contains("shard 1/2 wrote it, and this is shard 0/2"), "{refused}");
}

#[test]
fn what_nobody_needs_is_removed_and_a_late_order_removes_nothing_newer() {
    let rig = Rig::start(2);
    opened(&rig);
    (0..5).for_each(|number| keep_as(&rig, number));
    let left = || (0..5).filter(|number| path_of(&rig, 0, *number).exists()).collect::<Vec<_>>();
    rig.retain_checkpoints(0, thin(&[1, 3], 3)).unwrap();
    assert_eq!(left(), [1, 3, 4]);
    rig.retain_checkpoints(0, thin(&[0, 1], 1)).unwrap();
    assert_eq!(left(), [1, 3, 4]);
    // The fourth was given up, because another shard could not write it.
    rig.retain_checkpoints(0, thin(&[3], 4)).unwrap();
    assert_eq!(left(), [3]);
    rig.retain_checkpoints(0, last(&[])).unwrap();
    assert_eq!(left(), [0; 0]);
    rig.retain_checkpoints(0, last(&[])).unwrap();
}

#[test]
fn checkpoints_that_no_engine_knows_stay_as_long_as_their_job_is_open() {
    let rig = Rig::start(2);
    opened(&rig);
    keep_as(&rig, 0);
    assert_eq!(rig.collect_checkpoints(0, FolderGc::Remove), Ok(Forgotten::default()));
    rig.close();
    // With the digest beside it.
    let files = fs::read_dir(path_of(&rig, 0, 0).parent().unwrap()).unwrap();
    let bytes = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    let one = Ok(Forgotten { folders: 1, bytes });
    assert_eq!(
        (rig.collect_checkpoints(0, FolderGc::Count), rig.collect_checkpoints(0, FolderGc::Remove)),
        (one.clone(), one)
    );
    assert_eq!(rig.collect_checkpoints(0, FolderGc::Remove), Ok(Forgotten::default()));
    assert!(path_of(&rig, 1, 0).exists(), "another shard was not asked");
}

#[test]
fn a_late_order_to_write_brings_nothing_back_when_all_was_removed() {
    let rig = Rig::start(2);
    opened(&rig);
    keep_as(&rig, 0);
    rig.pin_checkpoint(0, 1).unwrap();
    rig.retain_checkpoints(0, last(&[])).unwrap();
    assert!(matches!(rig.write_checkpoint(0, 1), Err(ShardFault::NoCheckpoint { .. })));
    assert!(!path_of(&rig, 0, 1).parent().unwrap().exists());
}

#[test]
fn a_late_order_to_pin_holds_no_copy_where_that_of_the_end_stays() {
    let rig = Rig::start(2);
    opened(&rig);
    (0..2).for_each(|number| keep_as(&rig, number));
    rig.retain_checkpoints(0, last(&[1])).unwrap();
    for number in [0, 2] {
        rig.pin_checkpoint(0, number).unwrap();
        assert!(matches!(rig.write_checkpoint(0, number), Err(ShardFault::NoCheckpoint { .. })));
    }
    // An order of before is late, too, and begins nothing anew.
    rig.retain_checkpoints(0, thin(&[0, 1], 1)).unwrap();
    rig.pin_checkpoint(0, 2).unwrap();
    assert!(matches!(rig.write_checkpoint(0, 2), Err(ShardFault::NoCheckpoint { number: 2, .. })));
    assert_eq!([0, 1, 2].map(|number| path_of(&rig, 0, number).exists()), [false, true, false]);
}

#[test]
fn a_late_order_to_pin_what_was_given_up_holds_no_copy() {
    let rig = Rig::start(2);
    opened(&rig);
    keep_as(&rig, 1);
    rig.retain_checkpoints(0, thin(&[1], 2)).unwrap();
    rig.pin_checkpoint(0, 2).unwrap();
    assert!(matches!(rig.write_checkpoint(0, 2), Err(ShardFault::NoCheckpoint { number: 2, .. })));
    // One that is to stay may still have to be pinned.
    rig.retain_checkpoints(0, thin(&[1, 3], 3)).unwrap();
    rig.pin_checkpoint(0, 3).unwrap();
    rig.write_checkpoint(0, 3).unwrap();
}

/// Redis has lost that they were given. The counts of the next checkpoint would stand beside the parameters
/// of the first.
#[test]
fn a_number_that_is_given_again_at_another_moment_is_refused_and_the_next_one_is_free() {
    let rig = Rig::start(2);
    opened(&rig);
    push_all(&rig, FIRST, &[1]);
    (4..6).for_each(|number| keep_as(&rig, number));
    rig.exact_worker(1, ELEMENTS).push(2, RATE, &[&gradient(2)]).unwrap();
    for number in [4, 5] {
        let refused = rig.pin_checkpoint(0, number).unwrap_err();
        assert!(refused.to_string().contains("this shard made number 5 at another moment"), "{refused}");
    }
    keep_as(&rig, 6);
}

#[test]
fn a_file_of_another_number_is_not_taken() {
    let rig = Rig::start(2);
    let initial = opened(&rig);
    (0..2).for_each(|number| keep_as(&rig, number));
    fs::copy(path_of(&rig, 0, 0), path_of(&rig, 0, 1)).unwrap();
    let refused = restore(&rig, 0, 1, &initial).unwrap_err();
    assert!(refused.to_string().contains("it is checkpoint 0 of job"), "{refused}");
}

#[test]
fn a_job_that_goes_on_from_a_file_on_other_shards_ends_in_the_same_bits_as_what_never_stopped() {
    let unbroken = Rig::start(2);
    opened(&unbroken);
    push_all(&unbroken, FIRST, &[1, 2, 3, 4]);

    let rig = Rig::start(2);
    opened(&rig);
    push_all(&rig, FIRST, &[1, 2]);
    keep_as(&rig, 7);
    let parts: Vec<Vec<u8>> = (0..2).map(|shard| rig.shared_checkpoint(shard, 7)).collect();
    let file = file_of(&parts, 7).unwrap();
    let about = CheckpointAbout::read(&file).unwrap();
    assert_eq!((&about.layout, about.optimizer), (&layout(ELEMENTS), ADAM));
    assert_eq!(about.resume.steps, [StepRun { elements: ELEMENTS, steps: 2 }]);

    for shards in [1, 3] {
        let other = Rig::start(shards);
        let initial = other.blobs().put(&other.addresses()[0], &file).unwrap();
        for shard in 0..shards {
            let resumed = Some(about.resume.steps.clone());
            let order = OpenJob { optimizer: ADAM, resumed, ..other.order(shard, ELEMENTS, &initial) };
            other.open_one(EPOCH, order).unwrap();
        }
        push_all(&other, FIRST, &[3, 4]);
        assert!(values(&other, FIRST) == values(&unbroken, FIRST), "{shards} shards");
    }
    // One bit of the values, of the first moment, of the second.
    for bit in [8 * file.len() - 1, 8 * (file.len() / 2), 8 * (file.len() - ELEMENTS as usize * 4 * 3) + 3] {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refused = CheckpointAbout::read(&flipped).unwrap_err().to_string();
        assert!(refused.contains("not those that were written"), "bit {bit}: {refused}");
    }
    // One bit of each byte of what it says of the training: steps, position, rates.
    let key = b"\"syncline.checkpoint\":\"";
    let start = file.windows(key.len()).position(|window| window == key).unwrap() + key.len();
    let end = (start..).find(|&at| file[at] == b'"' && file[at - 1] != b'\\').unwrap();
    assert!(end - start > 300, "{start} to {end}");
    for at in start..end {
        let mut flipped = file.clone();
        flipped[at] ^= 1;
        assert!(CheckpointAbout::read(&flipped).is_err(), "byte {at}: {}", file[at] as char);
    }
    for (what, parts) in [("one part alone", &parts[..1]), ("in another order", &[parts[1].clone()])] {
        assert!(file_of(parts, 7).is_err(), "{what}");
    }
    assert!(file_of(&parts, 8).is_err(), "another checkpoint");
}

#[test]
fn a_part_that_was_shared_and_removed_is_shared_again() {
    let rig = Rig::start(2);
    opened(&rig);
    push_all(&rig, FIRST, &[1]);
    keep_as(&rig, 7);
    let part = rig.shared_checkpoint(0, 7);
    let digest = digest_of(&part);
    rig.release(EPOCH, 0, &[&digest]).unwrap();
    assert!(rig.blobs().get(&rig.addresses(), digest).is_err(), "it is gone");
    assert!(rig.shared_checkpoint(0, 7) == part);
}

/// The file of checkpoint `number` from what the shards have shared.
fn file_of(parts: &[Vec<u8>], number: u64) -> std::io::Result<Vec<u8>> {
    let resume = ResumeSpec {
        job: "digits".parse().unwrap(),
        checkpoint: number,
        epoch_samples: 10,
        train_samples: 10,
        seed: 0,
        shuffle: true,
        position: SamplePosition { epoch: 0, next: 2, returned: Vec::new() },
        iterations: 2,
        iterations_torn: 0,
        samples_torn: 0,
        steps_by_round: false,
        evaluated: true,
        evaluations: None,
        reduced_rate: None,
        steps: Vec::new(),
    };
    let mut file = std::io::Cursor::new(Vec::new());
    write_checkpoint_file(resume, None, parts.iter().map(|part| Ok(part.clone())), &mut file)?;
    Ok(file.into_inner())
}
