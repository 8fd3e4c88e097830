//! A standby that fetches checkpoints.

use std::{fs, io::Write as _, path::PathBuf};

use syncline_scheduler::ids::Generation;

use super::{
    super::{
        checked_file::write_checked,
        mirroring::rig::{Pair, TERM},
    },
    *,
};

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
    assert!(all.iter().all(|(name, _)| rig.has_same(name)));
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
    assert_eq!(fs::read_dir(rig.path(0, "digits-0000002a")).unwrap().count(), 1, "nothing unfinished stays");
    assert_eq!(rig.mirror.failed.len(), 2);
    // Whole by now, but it is too early to look.
    rig.put(&names[0], b"parameters");
    assert_eq!(rig.look(), 0);
    rig.mirror.failed.values_mut().for_each(|since| *since = since.checked_sub(FAILED_PAUSE).unwrap());
    assert_eq!(rig.look(), 1);
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
    let kept = copy(&rig.pair.shared, &rig.pair.primary(), TERM, &digits(1), SystemTime::now()).unwrap();
    assert!(!kept && !rig.path(0, name).parent().unwrap().exists());
}

#[test]
fn what_is_removed_while_it_is_fetched_does_not_come_back() {
    let rig = Rig::new();
    let (shared, kept) = (&rig.pair.shared, digits(3));
    let digest = *blake3::hash(b"").as_bytes();
    // The order that comes when the file is begun, and whether what was fetched by then is kept.
    let cases: [(&[u64], u64, bool); 4] =
        [(&[4], 4, false), (&[3, 4], 4, true), (&[], 2, true), (&[], u64::MAX, false)];
    for (numbers, through, is_kept) in cases {
        *lock(&shared.fetching.current) = Some(kept.clone());
        let file = checkpoints::begin_copy(shared, &kept).unwrap().unwrap();
        // The folder goes with all that is in it, where everything is removed.
        checkpoints::keep(shared, &kept.run, numbers, through).unwrap();
        let stays = fs::exists(rig.path(0, "digits-0000002a")).unwrap();
        if stays {
            let got = checkpoints::keep_copy(shared, &kept, file, &digest, SystemTime::now());
            assert_eq!(got, Ok(is_kept), "{numbers:?} through {through}");
        }
        assert_eq!(
            rig.path(0, "digits-0000002a/3.checkpoint").exists(),
            is_kept,
            "{numbers:?} through {through}"
        );
        let _ = fs::remove_file(rig.path(0, "digits-0000002a/3.checkpoint"));
    }
    // Nobody wants it any more: its folder is not made again.
    assert!(checkpoints::begin_copy(shared, &kept).unwrap().is_none());
    assert!(!rig.path(0, "digits-0000002a").exists());
}
