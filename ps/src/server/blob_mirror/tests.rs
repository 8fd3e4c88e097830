//! A standby that fetches blobs.

use std::{fs, ops::Deref, sync::mpsc};

use syncline_rpc::{ReplicaRole, ShardHello, ShardPeer, threads::lock};
use syncline_scheduler::ids::{ContentDigest, EngineEpoch, ShardIndex};

use super::{
    super::{
        blobs::{BlobStore, UNFINISHED},
        mirroring::rig::{Pair, TERM},
        rig::follow_orders,
        role_change,
    },
    *,
};
use crate::content::digest_of;
use crate::waiting::until;

/// A standby, and the process that serves, which has blobs of one byte each.
struct Rig(Pair);

impl Deref for Rig {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.0
    }
}

impl Rig {
    fn new(blobs: u8) -> Self {
        let rig = Self(Pair::new());
        (0..blobs).for_each(|n| rig.put(n, &[n]));
        rig
    }

    fn digest(n: u8) -> ContentDigest {
        digest_of(&[n])
    }

    /// Gives the primary a blob.
    fn put(&self, n: u8, bytes: &[u8]) {
        let name = Self::digest(n).to_string();
        fs::write(self.dirs[1].path().join("blobs").join(name), bytes).unwrap();
    }

    fn has(&self, n: u8) -> bool {
        self.shared.blobs.stat(&Self::digest(n)).unwrap().is_some()
    }

    fn fetch(&self, lacking: &mut MissingBlobs) -> Result<Look, LinkError> {
        fetch_missing(&self.shared, &self.primary(), || true, lacking, &mut Duration::default())
    }
}

/// It served until a moment ago, and was given values that this process had not fetched yet.
#[test]
fn what_a_process_has_that_comes_to_follow_is_fetched_by_the_one_that_has_taken_over() {
    let rig = Rig::new(2);
    role_change::promote(&rig.shared, EngineEpoch(1), TERM + 1).unwrap();
    let peer = Some(ShardPeer { term: TERM + 2, address: rig.primary() });
    let role = ReplicaRole::Primary { term: TERM + 1 };
    follow_orders(&rig.shared, role, peer);
    until("both blobs are here", || rig.has(0) && rig.has(1));
}

#[test]
fn a_damaged_blob_of_the_primary_holds_up_no_others_and_is_not_asked_for_again_and_again() {
    let (rig, mut lacking) = (Rig::new(12), MissingBlobs::default());
    [3, 7, 11].into_iter().for_each(|n| rig.put(n, b"torn"));
    rig.fetch(&mut lacking).unwrap();
    assert!((0..12).all(|n| rig.has(n) == (n % 4 != 3)));
    // Whole by now, but it is too early to look.
    rig.put(3, &[3]);
    rig.fetch(&mut lacking).unwrap();
    assert!(!rig.has(3));
    lacking.since.values_mut().for_each(|since| *since = since.checked_sub(DAMAGED_PAUSE).unwrap());
    rig.fetch(&mut lacking).unwrap();
    assert!(rig.has(3) && !lacking.since.contains_key(&Rig::digest(3)));
}

#[test]
fn a_standby_that_cannot_keep_a_blob_keeps_the_others_and_is_not_called_mirrored_until_it_can() {
    let (rig, mut lacking, mut outage) = (Rig::new(12), MissingBlobs::default(), OutageLogger::default());
    let blobs = rig.dirs[0].path().join("blobs");
    let mut is_mirrored_after = |fetched| {
        note(&rig.shared, TERM, fetched, "primary:1", &mut outage);
        let hello = ShardHello::alone(ShardIndex(0), 1, String::new(), 1);
        rig.shared.role.complete_hello(&rig.shared, &hello).mirrored
    };
    assert!(is_mirrored_after(Ok(Look::All)));
    // In the place of the files that are written to first.
    let in_the_way = |number: usize| blobs.join(format!("{}-{number}.{UNFINISHED}", std::process::id()));
    (0..2).for_each(|number| fs::create_dir(in_the_way(number)).unwrap());
    assert!(!is_mirrored_after(rig.fetch(&mut lacking)));
    assert_eq!((0..12).filter(|n| rig.has(*n)).count(), 10);
    assert_eq!(lacking.unkept.len(), 2);
    assert!(is_mirrored_after(rig.fetch(&mut lacking)) && (0..12).all(|n| rig.has(n)));
    let away = || LinkError::Broken(io::ErrorKind::ConnectionRefused.into());
    assert!(is_mirrored_after(Err(away())), "the primary may be gone, and this one is to serve");
}

#[test]
fn a_look_at_which_nothing_can_be_kept_is_over_soon() {
    let (rig, mut lacking) = (Rig::new(12), MissingBlobs::default());
    let blobs = rig.dirs[0].path().join("blobs");
    for number in 0..12 {
        fs::create_dir(blobs.join(format!("{}-{number}.{UNFINISHED}", std::process::id()))).unwrap();
    }
    assert!(rig.fetch(&mut lacking).is_err());
    assert_eq!(lacking.unkept.len(), MAX_UNKEPT);
    let first = lacking.unkept.clone();
    assert!(rig.fetch(&mut lacking).is_err() && lacking.unkept.is_disjoint(&first), "others come first");
}

#[test]
fn a_blob_at_which_the_connection_breaks_twice_comes_last_and_then_counts_as_damaged() {
    let (mut lacking, blob) = (MissingBlobs::default(), Rig::digest(7));
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    lacking.suspect(blob, broken(), "a:1");
    assert!(!lacking.holds(&blob) && lacking.suspect == Some(blob));
    lacking.suspect(blob, broken(), "a:1");
    assert!(lacking.holds(&blob));
}

#[test]
fn what_the_process_that_served_before_may_have_is_not_missing_until_that_one_had_the_time_to_come_back() {
    let (rig, term) = (Rig::new(1), TERM + 1);
    let (there, nowhere) = (Rig::digest(0), Rig::digest(1));
    assert_eq!(fetch_from_standby(&rig.shared, there), Ok(false), "who follows asks nobody here");
    role_change::promote(&rig.shared, EngineEpoch(1), term).unwrap();
    let fault = fetch_from_standby(&rig.shared, there).unwrap_err();
    assert_eq!(fault.code(), "E454", "{fault}");
    let serves_since = |since| lock(&rig.shared.role.state).serves_since = since;
    serves_since(Instant::now().checked_sub(STANDBY_PATIENCE));
    assert_eq!(fetch_from_standby(&rig.shared, there), Ok(false), "it had the time to");
    serves_since(Some(Instant::now()));
    let peer = Some(ShardPeer { address: rig.primary(), term: term + 1 });
    let role = ReplicaRole::Primary { term };
    follow_orders(&rig.shared, role, peer);
    assert_eq!([there, nowhere].map(|blob| fetch_from_standby(&rig.shared, blob)), [Ok(true), Ok(false)]);
}

#[test]
fn others_do_not_wait_for_a_large_blob() {
    let (rig, mut lacking) = (Rig::new(1), MissingBlobs::default());
    let large = vec![7; LARGE_BYTES as usize + 1];
    let digest = digest_of(&large);
    fs::write(rig.dirs[1].path().join("blobs").join(digest.to_string()), large).unwrap();
    assert_eq!(rig.fetch(&mut lacking).unwrap(), Look::Unfinished);
    assert!(rig.has(0) && lacking.is_copying(&digest));
    // It takes as long as we like.
    let (_, thread) = lacking.large.take().unwrap();
    let (go, gone) = mpsc::channel::<()>();
    let slow = move || {
        let _ = gone.recv();
        thread.join().unwrap()
    };
    lacking.large = Some((digest, thread::spawn(slow)));
    rig.put(1, &[1]);
    assert_eq!(rig.fetch(&mut lacking).unwrap(), Look::Unfinished);
    assert!(rig.has(1));
    drop(go);
    until("the large one is there", || rig.fetch(&mut lacking).unwrap() != Look::Unfinished);
    assert!(rig.shared.blobs.stat(&digest).unwrap().is_some());
}

#[test]
fn pages_of_any_length_name_every_blob_once() {
    let rig = Rig::new(12);
    let mut all: Vec<ContentDigest> = (0..12).map(Rig::digest).collect();
    all.sort_unstable();
    let blobs = BlobStore::open(rig.dirs[1].path().join("blobs")).unwrap();
    for most in [1, 5, 6, 12, 13] {
        let mut asked = 0;
        let mut listed = pages(most, |first| {
            asked += 1;
            blobs.list(&first, most)
        });
        listed.iter_mut().for_each(|listed| listed.sort_unstable());
        assert_eq!((listed, asked), (Ok(all.clone()), 12 / most + 1), "{most}");
    }
}

#[test]
fn the_next_digest_table() {
    let of = |ends: &[u8]| {
        let mut digest = [u8::MAX; ContentDigest::BYTES];
        digest[..ends.len()].copy_from_slice(ends);
        ContentDigest::from_bytes(digest)
    };
    let mut carried = [0; ContentDigest::BYTES];
    carried[0] = 8;
    assert_eq!(next_digest(&of(&[7])), Some(ContentDigest::from_bytes(carried)));
    let mut second = [0; ContentDigest::BYTES];
    let next = |digest| *next_digest(&ContentDigest::from_bytes(digest)).unwrap().as_bytes();
    assert_eq!(next(second)[31], 1);
    second[31] = u8::MAX;
    assert_eq!(next(second)[30..], [1, 0]);
    assert_eq!(next_digest(&of(&[])), None, "there is none above the highest");
}
