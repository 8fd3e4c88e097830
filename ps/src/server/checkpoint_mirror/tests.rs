//! A standby that fetches checkpoints.

use std::{
    cell::Cell,
    fs,
    io::{Read as _, Write as _},
    path::PathBuf,
    time::SystemTime,
};

use syncline_rpc::{ReplicaRole, Retention, ShardHello, ShardPeer, threads::lock};
use syncline_scheduler::ids::{Generation, ShardIndex};

use super::{
    super::{
        checked_file::{read_checked, write_checked},
        checkpoint_copy::{CHECKPOINT_PATIENCE, copy, or_from_standby},
        mirroring::rig::{Pair, TERM},
        rig::follow_orders,
    },
    *,
};
use crate::content::digest_of;

/// A standby with what it knows of the checkpoints of the process that serves.
struct Rig {
    pair: Pair,
    mirror: CheckpointMirror,
}

impl Rig {
    fn new() -> Self {
        Self { pair: Pair::new(), mirror: CheckpointMirror::default() }
    }

    /// Where a checkpoint lies on the standby, or on the primary.
    fn path(&self, process: usize, name: &str) -> PathBuf {
        self.pair.dirs[process].path().join("checkpoints").join(name)
    }

    /// Gives the primary a whole checkpoint.
    fn put(&self, name: &str, content: &[u8]) {
        let path = self.path(1, name);
        let file = self.pair.shared.blobs.begin_in(path.parent().unwrap()).unwrap();
        write_checked(file, &path, |out| out.write_all(content)).unwrap();
    }

    fn look(&mut self) -> usize {
        let (shared, primary) = (&self.pair.shared, self.pair.primary());
        self.mirror.fetch_missing(shared, &primary, TERM, &mut Duration::default()).unwrap()
    }

    /// What the engine is told that it lacks.
    fn lacking(&self) -> u64 {
        let (shared, alone) = (&self.pair.shared, ShardHello::alone(ShardIndex(0), 1, String::new(), 1));
        shared.role.complete_hello(shared, &alone).lacking_checkpoints
    }

    fn has_same(&self, name: &str) -> bool {
        fs::read(self.path(0, name)).ok() == fs::read(self.path(1, name)).ok()
    }
}

#[test]
fn what_was_written_before_a_standby_came_is_fetched_when_it_is_missing_twice() {
    let mut rig = Rig::new();
    assert_eq!(rig.look(), 0, "there are none");
    let large = vec![7; 1 << 20];
    let all = [("digits-0000002a/1.checkpoint", &large[..]), ("other-run-ffffffff/12.checkpoint", b"")];
    all.iter().for_each(|(name, content)| rig.put(name, content));
    // What is not a checkpoint is nobody's business.
    for name in ["digits-0000002a/README", "digits-0000002a/x.checkpoint", "digits/1.checkpoint"] {
        rig.put(name, b"x");
    }
    assert_eq!(rig.look(), 0, "it may be about to be written here");
    assert_eq!(rig.look(), 2);
    assert!(all.iter().all(|(name, _)| rig.has_same(name)) && rig.lacking() == 0);
    let written_at = |process: usize| fs::metadata(rig.path(process, all[0].0)).unwrap().modified().unwrap();
    assert_eq!(written_at(0), written_at(1), "who collects what is old finds it as old");
    assert_eq!(rig.look(), 0);
    assert_eq!(fs::read_dir(rig.path(0, "")).unwrap().count(), 2);
}

#[test]
fn one_that_is_damaged_is_not_kept_and_not_asked_for_again_and_again() {
    let mut rig = Rig::new();
    let names = [1, 2, 3].map(|n| format!("digits-0000002a/{n}.checkpoint"));
    names.iter().for_each(|name| rig.put(name, b"parameters"));
    // Torn in its content, and shorter than its digest.
    let mut torn = fs::read(rig.path(1, &names[0])).unwrap();
    torn[0] ^= 1;
    fs::write(rig.path(1, &names[0]), torn).unwrap();
    fs::write(rig.path(1, &names[1]), "short").unwrap();
    assert_eq!([rig.look(), rig.look(), rig.look()], [0, 1, 0]);
    assert!(rig.has_same(&names[2]));
    assert_eq!(fs::read_dir(rig.path(0, "digits-0000002a")).unwrap().count(), 2, "it and its digest");
    assert_eq!((rig.mirror.failed.len(), rig.lacking()), (2, 2));
    // Whole by now, but it is too early to look.
    rig.put(&names[0], b"parameters");
    assert_eq!(rig.look(), 0);
    rig.mirror.failed.values_mut().for_each(|since| *since = since.checked_sub(FAILED_PAUSE).unwrap());
    assert_eq!((rig.look(), rig.lacking()), (1, 1));
}

fn digits(number: u64) -> KeptCheckpoint {
    KeptCheckpoint {
        run: RunId { job: "digits".parse().unwrap(), generation: Generation::first(42) },
        number,
    }
}

#[test]
fn one_that_goes_before_it_is_fetched_is_no_fault() {
    let mut rig = Rig::new();
    let name = "digits-0000002a/1.checkpoint";
    rig.put(name, b"parameters");
    rig.look();
    fs::remove_file(rig.path(1, name)).unwrap();
    let (shared, primary) = (&rig.pair.shared, rig.pair.primary());
    let kept = copy(shared, &primary, &digits(1), SystemTime::now(), || true).unwrap();
    assert!(!kept && !rig.path(0, name).parent().unwrap().exists());
}

#[test]
fn one_that_is_fetched_twice_at_a_time_is_kept_by_both() {
    let rig = Rig::new();
    rig.put("digits-0000002a/1.checkpoint", b"parameters");
    let (shared, primary, begun) = (&rig.pair.shared, rig.pair.primary(), Cell::new(false));
    let fetch = |goes_on: &dyn Fn() -> bool| {
        copy(shared, &primary, &digits(1), SystemTime::now(), goes_on).map_err(|_| "broken off")
    };
    let in_the_middle = || {
        if !begun.replace(true) {
            assert_eq!(fetch(&|| true), Ok(true));
        }
        true
    };
    assert_eq!(fetch(&in_the_middle), Ok(true));
}

#[test]
fn what_is_removed_while_it_is_fetched_does_not_come_back() {
    let rig = Rig::new();
    let (shared, kept) = (&rig.pair.shared, digits(3));
    let digest = digest_of(b"");
    // The order that comes when the file is begun, and whether what was fetched by then is kept.
    let thin = |keep: &[u64], through| Retention::Thin { keep: keep.to_vec(), through };
    let last = |keep: &[u64]| Retention::Last { keep: keep.to_vec() };
    let cases = [
        (thin(&[4], 4), false),
        (thin(&[3, 4], 4), true),
        (thin(&[], 2), true),
        (last(&[3]), true),
        (last(&[2]), false),
        (last(&[]), false),
    ];
    for (retention, is_kept) in cases {
        let wish = shared.fetching.want(&kept);
        let file = checkpoints::begin_copy(shared, &wish).unwrap().unwrap();
        // The folder goes with all that is in it, where everything is removed.
        checkpoints::retain(shared, &kept.run, &retention).unwrap();
        let stays = fs::exists(rig.path(0, "digits-0000002a")).unwrap();
        if stays {
            let got = checkpoints::keep_copy(shared, &wish, file, &digest, SystemTime::now());
            assert_eq!(got, Ok(is_kept), "{retention:?}");
        }
        assert_eq!(rig.path(0, "digits-0000002a/3.checkpoint").exists(), is_kept, "{retention:?}");
        let _ = fs::remove_file(rig.path(0, "digits-0000002a/3.checkpoint"));
        // Nobody wants what is removed: its folder is not made again.
        assert_eq!(checkpoints::begin_copy(shared, &wish).unwrap().is_some(), is_kept);
    }
    assert!(!rig.path(0, "digits-0000002a").exists());
}

/// The process of the first folder serves, and the other one follows it, or has not come yet.
fn serving(rig: &Rig, peer: Option<String>) -> Arc<Shared> {
    let shared = Shared::for_test(rig.pair.dirs[0].path());
    // Both have the token of the cluster.
    let shared =
        Arc::new(Shared { token: rig.pair.shared.token.clone(), ..Arc::into_inner(shared).unwrap() });
    let peer = peer.map(|address| ShardPeer { term: TERM + 1, address });
    let role = ReplicaRole::Primary { term: TERM };
    follow_orders(&shared, role, peer);
    shared
}

/// What the process that serves reads of a checkpoint.
fn content(shared: &Shared, rig: &Rig, number: u64) -> Result<Vec<u8>, ShardFault> {
    let run = digits(number).run;
    // Of a later generation than the folder says.
    let run = RunId { generation: run.generation.next(), ..run };
    let path = rig.path(0, &format!("digits-0000002a/{number}.checkpoint"));
    or_from_standby(shared, &run, number, || {
        let mut content = Vec::new();
        let read = read_checked(&path, |from| from.read_to_end(&mut content).map(drop));
        let lacks = |error: io::Error| ShardFault::NoCheckpoint {
            job: run.job.clone(),
            number,
            cause: error.to_string(),
        };
        read.map(|()| content).map_err(lacks)
    })
}

#[test]
fn what_a_process_with_an_empty_disk_needs_comes_from_the_one_that_follows_it() {
    let rig = Rig::new();
    let names = [1, 2, 3].map(|number| format!("digits-0000002a/{number}.checkpoint"));
    names[..2].iter().for_each(|name| rig.put(name, b"parameters"));
    let shared = serving(&rig, Some(rig.pair.primary()));
    assert_eq!(content(&shared, &rig, 1).unwrap(), b"parameters");
    assert!(rig.has_same(&names[0]));
    fs::write(rig.path(0, &names[1]), "torn").unwrap();
    assert_eq!(content(&shared, &rig, 2).unwrap(), b"parameters");
    assert_eq!(content(&shared, &rig, 3).unwrap_err().code(), "E439", "nobody has it");
    assert_eq!(fs::read_dir(rig.path(0, "digits-0000002a")).unwrap().count(), 4, "two and their digests");
}

#[test]
fn what_neither_of_two_old_processes_has_is_not_lost_until_the_one_that_served_last_had_the_time_to_come() {
    let rig = Rig::new();
    rig.put("digits-0000002a/9.checkpoint", b"parameters");
    let shared = serving(&rig, Some(rig.pair.primary()));
    let older = rig.path(0, "digits-0000002a/3.checkpoint");
    let file = shared.blobs.begin_in(older.parent().unwrap()).unwrap();
    write_checked(file, &older, |out| out.write_all(b"parameters")).unwrap();
    let fault = content(&shared, &rig, 17).unwrap_err();
    let told = fault.to_string();
    assert!(
        fault.code() == "E406" && told.contains(&rig.pair.primary()) && told.contains("served last"),
        "{told}"
    );
    lock(&shared.role.state).serves_since = Instant::now().checked_sub(CHECKPOINT_PATIENCE);
    assert_eq!(content(&shared, &rig, 17).unwrap_err().code(), "E439");
}

#[test]
fn what_may_be_on_a_process_that_has_not_come_yet_is_not_lost_until_it_had_the_time_to() {
    let rig = Rig::new();
    for peer in [None, Some("127.0.0.1:1".to_owned())] {
        let shared = serving(&rig, peer.clone());
        assert_eq!(content(&shared, &rig, 1).unwrap_err().code(), "E406", "{peer:?}");
        lock(&shared.role.state).serves_since = Instant::now().checked_sub(CHECKPOINT_PATIENCE);
        assert_eq!(content(&shared, &rig, 1).unwrap_err().code(), "E439", "{peer:?}");
    }
}
