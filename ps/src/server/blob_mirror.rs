//! The blobs of a shard lie on both of its processes: the one that follows fetches what it lacks, every second; the one that
//! serves asks the other for what it does not find.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Read, Write},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::ShardFault;
use tracing::{debug, warn};

use super::{Shared, blobs::Durability};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    wire::{Digest, Reply, Request},
};

/// Bounds connecting and every wait for the other process.
const PEER_LIMIT: Duration = Duration::from_secs(5);
/// The other process brings a blob to disk before it answers.
const STORE_LIMIT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(1);
/// Looking takes at most one part in so many of the time, as long as the pause between two looks stays below the longest.
const SHARE: u32 = 10;
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
/// What came damaged is asked for again after this time.
const DAMAGED_PAUSE: Duration = Duration::from_secs(300);
const PIECE_BYTES: u64 = 256 << 10;
/// Longest list that is read: a million blobs.
const MAX_LIST_BYTES: u64 = 32 << 20;

/// Starts to fetch what the primary has, unless that goes on already. Ends when this process follows no more.
pub(super) fn run(shared: &Arc<Shared>) {
    if shared.mirroring.swap(true, Ordering::AcqRel) {
        return;
    }
    let held = shared.clone();
    let mirror = move || {
        let mut damaged = Damaged::default();
        while let Some(term) = held.role.standby_term()
            && held.stopping().is_ok()
        {
            let mut looking = Duration::ZERO;
            if let Some(primary) = held.role.peer_address() {
                match fetch_missing(&held, &primary, &mut damaged, &mut looking) {
                    Ok(()) => held.role.set_mirrored(term),
                    Err(error) => {
                        debug!(error = %error.into_error(&primary), "cannot fetch blobs from the primary yet");
                    }
                }
            }
            thread::sleep(pause_after(looking));
        }
        held.mirroring.store(false, Ordering::Release);
    };
    if let Err(error) = thread::Builder::new().name("ps-mirror".into()).spawn(mirror) {
        shared.mirroring.store(false, Ordering::Release);
        warn!(%error, "no thread that fetches blobs");
    }
}

fn pause_after(looking: Duration) -> Duration {
    (looking * SHARE).clamp(INTERVAL, LONGEST_INTERVAL)
}

/// Blobs that the primary could not give as they are named: after a power cut some may be torn. They hold up no others, and are
/// asked for again after a while.
#[derive(Default)]
struct Damaged {
    since: HashMap<Digest, Instant>,
    /// At this one the connection broke last time.
    suspect: Option<Digest>,
}

impl Damaged {
    /// Whether it is too early to ask for it again.
    fn holds(&self, digest: &Digest) -> bool {
        self.since.get(digest).is_some_and(|since| since.elapsed() < DAMAGED_PAUSE)
    }

    /// The connection broke at this one, maybe because its file cannot be read: it comes last from now on, and is damaged if
    /// that happens again.
    fn suspect(&mut self, digest: Digest, error: io::Error, primary: &str) -> LinkError {
        if self.suspect.replace(digest) == Some(digest) {
            let same = io::Error::new(error.kind(), error.to_string());
            self.note(digest, LinkError::Broken(same), primary);
        }
        LinkError::Broken(error)
    }

    fn note(&mut self, digest: Digest, error: LinkError, primary: &str) {
        if self.since.insert(digest, Instant::now()).is_none() {
            let (blob, error) = (blake3::Hash::from_bytes(digest).to_hex(), error.into_error(primary));
            warn!(%blob, %error, "a blob of the primary is damaged, or cannot be read there: it is not on this process");
        }
    }
}

/// What the primary lacks stays: only the engine says what nobody needs, to both. `looking`: how long it took to find out what
/// is missing, without the copying.
fn fetch_missing(
    shared: &Shared,
    primary: &str,
    damaged: &mut Damaged,
    looking: &mut Duration,
) -> Result<(), LinkError> {
    let started = Instant::now();
    let mut link = Link::open(primary, &shared.token, PEER_LIMIT)?;
    let mut missing = Vec::new();
    let listed = list(&mut link)?;
    for digest in &listed {
        if shared.blobs.stat(digest).map_err(LinkError::Fault)?.is_none() && !damaged.holds(digest) {
            missing.push(*digest);
        }
    }
    missing.sort_by_key(|digest| damaged.suspect == Some(*digest));
    if !damaged.since.is_empty() {
        let listed: HashSet<Digest> = listed.into_iter().collect();
        damaged.since.retain(|digest, _| listed.contains(digest));
    }
    *looking = started.elapsed();
    for digest in missing {
        if shared.role.standby_term().is_none() || shared.stopping().is_err() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        match copy(shared, &mut link, digest) {
            Ok(_) => drop(damaged.since.remove(&digest)),
            // All of it was read: the connection goes on.
            Err(error @ LinkError::Fault(ShardFault::Invalid { .. })) => damaged.note(digest, error, primary),
            Err(LinkError::Broken(error)) => return Err(damaged.suspect(digest, error, primary)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn list(link: &mut Link) -> Result<Vec<Digest>, LinkError> {
    link.ask(&Request::ListBlobs)?;
    let bytes = match link.answer()? {
        (Reply::BlobList, bytes) if bytes <= MAX_LIST_BYTES => bytes,
        (reply, _) => return Err(unexpected_reply(&reply)),
    };
    let mut body = vec![0; bytes as usize];
    link.read_body(&mut body)?;
    Ok(body.as_chunks().0.to_vec())
}

/// Copies one blob from the other process; false if it is not there. It is invalid if that process cannot give it; another fault
/// is one of this process.
fn copy(shared: &Shared, link: &mut Link, digest: Digest) -> Result<bool, LinkError> {
    let of_peer = |error| match error {
        LinkError::Fault(fault) => LinkError::Fault(ShardFault::Invalid { what: fault.to_string() }),
        other => other,
    };
    let Some(total) = link.stat_blob(digest).map_err(of_peer)? else { return Ok(false) };
    match link.ask_blob(digest, 0, total) {
        // It went in the meantime.
        Err(LinkError::Fault(ShardFault::MissingBlob { .. })) => return Ok(false),
        asked => asked.map_err(of_peer)?,
    }
    let mut incoming = shared.blobs.begin().map_err(LinkError::Fault)?;
    in_pieces(shared, total, |piece| {
        link.read_body(piece)?;
        incoming.write(piece).map_err(LinkError::Fault)
    })?;
    shared.blobs.keep_checked(incoming, &digest, Durability::Soon).map_err(LinkError::Fault)?;
    Ok(true)
}

/// Looks for a blob that is not here on the process that follows this one. Whether it is here now.
pub(super) fn fetch_from_standby(shared: &Shared, digest: Digest) -> bool {
    let Some(standby) = shared.role.standby() else { return false };
    let fetch = || copy(shared, &mut Link::open(&standby.address, &shared.token, PEER_LIMIT)?, digest);
    fetch().unwrap_or_else(|error| {
        debug!(error = %error.into_error(&standby.address), "cannot ask the standby for a blob");
        false
    })
}

/// Gives a blob to the process that follows this one before it is acknowledged to anybody. One that cannot take it now fetches
/// it later.
pub(super) fn send_to_standby(shared: &Shared, digest: Digest) {
    let Some(standby) = shared.role.standby() else { return };
    if let Err(error) = send(shared, &standby.address, digest) {
        warn!(error = %error.into_error(&standby.address), "the standby has not got a blob yet");
    }
}

fn send(shared: &Shared, address: &str, digest: Digest) -> Result<(), LinkError> {
    let mut file = File::open(shared.blobs.path(&digest))?;
    let bytes = file.metadata()?.len();
    let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
    link.put_blob(digest, bytes, Some(STORE_LIMIT), |channel| {
        in_pieces(shared, bytes, |piece| {
            file.read_exact(piece)?;
            channel.write_all(piece)
        })
    })
}

/// Passes so many bytes on, a piece at a time, unless this process is to stop.
fn in_pieces<E: From<io::Error>>(
    shared: &Shared,
    bytes: u64,
    mut pass: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut piece = vec![0; PIECE_BYTES.min(bytes) as usize];
    let mut left = bytes;
    while left > 0 {
        shared.stopping()?;
        let part = left.min(PIECE_BYTES);
        pass(&mut piece[..part as usize])?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use syncline_rpc::{ReplicaRole, ShardOrders};
    use syncline_scheduler::ids::EngineEpoch;

    use super::{
        super::{Options, Server, role_change},
        *,
    };

    #[test]
    fn a_damaged_blob_of_the_primary_holds_up_no_others_and_is_not_asked_for_again_and_again() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let shared = Shared::for_test(dir.path());
        let role = ReplicaRole::Standby { term: 1 };
        role_change::follow_orders(
            &shared,
            &ShardOrders { epoch: EngineEpoch(1), role, peer: None, lead_expired: false },
        );
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            token: shared.token.clone(),
            state_dir: other.path().to_owned(),
            index: 0,
            count: 1,
            replicas: 1,
            engine: None,
            advertise: None,
        };
        let primary = Server::start(options).unwrap();
        let address = primary.address().to_string();
        let digests: Vec<Digest> = (0..12u8).map(|n| *blake3::hash(&[n]).as_bytes()).collect();
        let put = |n: u8, bytes: &[u8]| {
            let name = blake3::Hash::from_bytes(digests[usize::from(n)]).to_hex();
            fs::write(other.path().join("blobs").join(name.as_str()), bytes).unwrap();
        };
        (0..12).for_each(|n| put(n, if n % 4 == 3 { b"torn" } else { std::slice::from_ref(&n) }));
        let has = |n: u8| shared.blobs.stat(&digests[usize::from(n)]).unwrap().is_some();
        let mut damaged = Damaged::default();
        let fetch = |damaged: &mut Damaged| {
            let mut looking = Duration::ZERO;
            fetch_missing(&shared, &address, damaged, &mut looking).unwrap();
        };
        fetch(&mut damaged);
        assert!((0..12).all(|n| has(n) == (n % 4 != 3)));
        // Whole by now, but it is too early to look.
        put(3, &[3]);
        fetch(&mut damaged);
        assert!(!has(3));
        damaged.since.values_mut().for_each(|since| *since = since.checked_sub(DAMAGED_PAUSE).unwrap());
        fetch(&mut damaged);
        assert!(has(3) && !damaged.since.contains_key(&digests[3]));
        shared.stopping.store(true, Ordering::SeqCst);
    }

    #[test]
    fn a_blob_at_which_the_connection_breaks_twice_comes_last_and_then_counts_as_damaged() {
        let (mut damaged, blob) = (Damaged::default(), [7; 32]);
        let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
        damaged.suspect(blob, broken(), "a:1");
        assert!(!damaged.holds(&blob) && damaged.suspect == Some(blob));
        damaged.suspect(blob, broken(), "a:1");
        assert!(damaged.holds(&blob));
    }

    #[test]
    fn values_are_fetched_every_second_and_where_looking_takes_long_every_ten() {
        let pause_ms = |ms| pause_after(Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 90, 300, 60_000].map(pause_ms), [1_000, 1_000, 3_000, 10_000]);
    }
}
