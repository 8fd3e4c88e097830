//! Blobs, initial parameters and snapshots on disk.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    time::{Duration, SystemTime},
};

use super::rig::{EPOCH, FIRST, Rig, SGD, UNIT, job, look, run};
use safetensors::SafeTensors;
use syncline_ps::{
    client::{CancelToken, ValueClient, digest_from_hex},
    wire::{Reply, Request},
};
use syncline_rpc::{Collected, DigestRange, ShardFault};
use syncline_scheduler::ids::{ContentDigest, EngineEpoch, Generation};

#[test]
fn a_blob_comes_back_from_whichever_shard_has_it() {
    let rig = Rig::start(2);
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7) as u8).collect();
    let addresses = rig.addresses();
    let digest = rig.blobs().put(&addresses[1], &bytes).unwrap();
    assert_eq!(rig.blobs().put(&addresses[1], &bytes).unwrap(), digest);
    assert_eq!(rig.has_blobs(0, &[&digest]), [false]);
    assert_eq!(rig.has_blobs(1, &[&digest, &ContentDigest::LOWEST]), [true, false]);
    assert_eq!(rig.blobs().get(&addresses, digest).unwrap(), bytes);
    assert_eq!(rig.blobs().get(&addresses, ContentDigest::LOWEST).unwrap_err().code(), "E404");
    assert_eq!(digest_from_hex("../../etc").unwrap_err().code(), "E417");
    let empty = rig.blobs().put(&addresses[0], &[]).unwrap();
    assert_eq!(rig.blobs().get(&addresses, empty).unwrap(), b"");
}

#[test]
fn a_blob_that_is_not_its_digest_is_refused_and_leaves_nothing() {
    let rig = Rig::start(1);
    let mut stream = rig.channel(0);
    let mut out = Vec::new();
    Request::PutBlob { digest: ContentDigest::from_bytes([1; 32]) }.encode(5, &mut out);
    out.extend_from_slice(b"hello");
    stream.write_all(&out).unwrap();
    let (reply, _) = Reply::read(&mut stream, &mut out).unwrap();
    assert!(matches!(reply, Reply::Fault(ShardFault::Invalid { .. })), "{reply:?}");
    let blobs = rig.blob_path(0, "x").parent().unwrap().to_owned();
    assert_eq!(fs::read_dir(blobs).unwrap().count(), 0);
}

#[test]
fn a_blob_damaged_on_disk_is_noticed_by_its_reader_and_removed_so_that_it_is_uploaded_again() {
    let rig = Rig::start(2);
    let addresses = rig.addresses();
    let code = |digest| rig.blobs().get(&addresses, digest).unwrap_err().code();
    let digest = rig.blobs().put(&addresses[0], b"precious").unwrap();
    let damage = || fs::write(rig.blob_path(0, digest), b"previous").unwrap();
    damage();
    assert_eq!([code(digest), code(digest)], ["E415", "E404"]);
    rig.blobs().put(&addresses[0], b"precious").unwrap();
    assert_eq!(rig.blobs().get(&addresses, digest).unwrap(), b"precious");
    // A whole copy elsewhere is found.
    damage();
    rig.blobs().put(&addresses[1], b"precious").unwrap();
    assert_eq!(rig.blobs().get(&addresses, digest).unwrap(), b"precious");
    // One that cannot be asked may have it whole.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for beside in [[addresses[0].clone(), nobody.clone()], [nobody, addresses[0].clone()]] {
        damage();
        let away = rig.blobs().get(&beside, digest).unwrap_err();
        assert!(away.is_away(), "{away}");
    }
}

#[test]
fn a_blob_damaged_on_disk_is_uploaded_again_by_whoever_has_it() {
    let rig = Rig::start(1);
    let addresses = rig.addresses();
    let digest = rig.blobs().put(&addresses[0], b"precious").unwrap();
    assert!(rig.blobs().has(&addresses[0], digest).unwrap());
    for upload in [
        |rig: &Rig, address: &String, digest: ContentDigest| {
            assert!(!rig.blobs().has(address, digest).unwrap(), "as who submits asks");
            rig.blobs().put(address, b"precious").unwrap();
        },
        |rig: &Rig, address: &String, _: ContentDigest| {
            rig.blobs().put(address, b"precious").unwrap();
        },
    ] {
        fs::write(rig.blob_path(0, digest), b"previous").unwrap();
        upload(&rig, &addresses[0], digest);
        assert_eq!(rig.blobs().get(&addresses, digest).unwrap(), b"precious");
    }
}

#[test]
fn a_value_of_a_task_that_is_damaged_on_disk_is_removed() {
    let rig = Rig::start(1);
    let values = ValueClient::new(rig.token.clone());
    let parts: [&[u8]; 2] = [b"salt", b"value"];
    let digest = ValueClient::digest(parts);
    for damaged in [&b"saltvalve"[..], b"saltval", b""] {
        values.put(&rig.addresses(), digest, parts, &CancelToken::default()).unwrap();
        fs::write(rig.blob_path(0, digest), damaged).unwrap();
        let code = || values.get(&rig.addresses(), digest, 9, &CancelToken::default()).unwrap_err().code();
        assert_eq!([code(), code()], ["E415", "E404"], "{damaged:?}");
    }
}

#[test]
fn every_shard_loads_its_part_of_the_initial_parameters() {
    let rig = Rig::start(3);
    let values: Vec<f32> = (0..10_000).map(|i| i as f32 - 0.5).collect();
    let initial = rig.blob(&values);
    for state in rig.open(FIRST, 10_000, SGD, &initial) {
        state.unwrap();
    }
    assert_eq!(look(&rig, 10_000), values);
}

#[test]
fn a_job_does_not_open_with_a_missing_or_wrong_blob() {
    let rig = Rig::start(2);
    let nowhere = ContentDigest::from_bytes([0xab; 32]);
    for result in rig.open(FIRST, 100, SGD, &nowhere) {
        assert_eq!(result, Err(ShardFault::MissingBlob { digest: nowhere }));
    }
    let short = rig.blob(&[0.0; 99]);
    for result in rig.open(FIRST, 100, SGD, &short) {
        assert!(matches!(result, Err(ShardFault::Invalid { .. })), "{result:?}");
    }
    assert_eq!(rig.attach(0, EPOCH), Ok(None));
}

#[test]
fn a_snapshot_holds_whole_named_tensors_of_the_pinned_version() {
    let rig = Rig::start(3);
    let values: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
    let initial = rig.blob(&values);
    rig.open(FIRST, 10_000, SGD, &initial);
    rig.barrier(0, 0, &[(1, 1)], true);
    let mut worker = rig.worker(1, 10_000);
    worker.push(1, UNIT, &[&[1.0; 10_000]]).unwrap();
    worker.push(2, UNIT, &[&[1.0; 10_000]]).unwrap();
    assert!(matches!(rig.snapshot(0, 2, "early"), Err(ShardFault::NotPinned { .. })));
    let report = rig.snapshot(0, 1, "after-1").unwrap();
    let bytes = fs::read(&report.path).unwrap();
    assert_eq!(bytes.len() as u64, report.bytes);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let want: Vec<f32> = values.iter().map(|x| x - 1.0).collect();
    for (name, shape, range) in
        [("first", vec![3333], 0..3333), ("second.weight", vec![1, 6667], 3333..10_000)]
    {
        let tensor = file.tensor(name).unwrap();
        assert_eq!(tensor.shape(), shape);
        let got: Vec<f32> =
            tensor.data().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(got, want[range]);
    }
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["job"], job().to_string());
    // The snapshot opens the next generation.
    for state in rig.open(Generation(2), 10_000, SGD, &report.digest) {
        state.unwrap();
    }
    let mut restored = vec![0.0; 10_000];
    let again = syncline_ps::client::ShardSet::connect(
        &rig.addresses(),
        rig.token.clone(),
        run(Generation(2)),
        Default::default(),
        10_000,
    );
    again.unwrap().pull(syncline_ps::shard::ReadCondition::version(0), &mut restored).unwrap();
    assert_eq!(restored, want);
}

#[test]
fn a_snapshot_name_cannot_leave_its_directory() {
    let rig = Rig::with_job(1, 100);
    rig.barrier(0, 0, &[], true);
    for bad in ["../x", "", "a/b", ".x"] {
        assert!(matches!(rig.snapshot(0, 1, bad), Err(ShardFault::Invalid { .. })), "{bad}");
    }
    assert!(matches!(rig.snapshot(0, 0, "x"), Err(ShardFault::NotPinned { .. })));
}

#[test]
fn a_directory_that_cannot_be_written_is_named_in_the_fault() {
    let rig = Rig::with_job(1, 100);
    rig.barrier(0, 0, &[], true);
    // A file stands where the directory should be.
    fs::write(rig.dir.path().join("0").join("snapshots"), b"").unwrap();
    match rig.snapshot(0, 1, "x") {
        Err(ShardFault::Io { what, .. }) => assert!(what.contains("snapshots"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn blobs_that_no_job_needs_are_collected_when_they_are_old() {
    let rig = Rig::start(1);
    let hour = 3600;
    let put = |bytes: &[u8]| rig.blobs().put(&rig.addresses()[0], bytes).unwrap();
    let (needed, fresh, stale, wanted) = (put(b"needed"), put(b"fresh"), put(b"stale"), put(b"wanted again"));
    let long_ago = SystemTime::now() - Duration::from_secs(2 * hour);
    for old in [&needed, &stale, &wanted] {
        let file = fs::File::options().append(true).open(rig.blob_path(0, old)).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    fs::write(rig.blob_path(0, "notes.txt"), b"not ours").unwrap();
    // A client that finds its blob there uploads nothing, and submits next.
    assert!(rig.blobs().has(&rig.addresses()[0], wanted).unwrap());
    assert_eq!(rig.collect(0, &[&needed], hour), Ok(Collected { blobs: 1, bytes: 5 }));
    assert_eq!(rig.has_blobs(0, &[&needed, &fresh, &stale, &wanted]), [true, true, false, true]);
    assert!(rig.blob_path(0, "notes.txt").exists());
    assert_eq!(rig.collect(0, &[], hour), Ok(Collected::default()), "all of them were asked for just now");
}

#[test]
fn only_blobs_of_the_range_that_is_asked_about_are_collected() {
    let rig = Rig::start(1);
    let mut blobs =
        ["a", "b", "c"].map(|text| rig.blobs().put(&rig.addresses()[0], text.as_bytes()).unwrap());
    blobs.sort();
    let [low, middle, high] = blobs;
    let range = DigestRange { first: Some(middle), end: Some(high) };
    assert_eq!(rig.collect_in(range, 0, &[], 0), Ok(Collected { blobs: 1, bytes: 1 }));
    assert_eq!(rig.has_blobs(0, &[&low, &middle, &high]), [true, false, true]);
}

#[test]
fn blobs_that_are_released_go_at_once_and_only_by_word_of_the_engine_that_leads() {
    let rig = Rig::start(1);
    let put = |bytes: &[u8]| rig.blobs().put(&rig.addresses()[0], bytes).unwrap();
    let (value, other) = (put(b"value"), put(b"other"));
    let unknown = ContentDigest::LOWEST;
    for _ in 0..2 {
        assert_eq!(rig.release(EPOCH, 0, &[&unknown, &value]), Ok(()));
        assert_eq!(rig.has_blobs(0, &[&value, &other]), [false, true]);
    }
    let deposed = rig.release(EngineEpoch(EPOCH.0 - 1), 0, &[&other]);
    assert!(matches!(deposed, Err(ShardFault::Fenced { .. })), "{deposed:?}");
    assert_eq!(rig.has_blobs(0, &[&other]), [true]);
}
