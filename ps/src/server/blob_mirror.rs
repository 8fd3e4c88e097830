//! The blobs of a shard lie on both of its processes: the one that follows fetches what it lacks, every
//! second; the one that serves asks the other for what it does not find, and fetches what it lacks of one
//! that comes.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Read, Write},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{
    OutageLogger, ShardFault, ShardPeer,
    threads::{self, NoThread},
};
use tracing::{debug, warn};

use super::{
    Shared,
    blobs::Durability,
    mirroring::{self, PEER_LIMIT, ask_for_list, in_pieces, pause_after},
};
use crate::{
    client::{Link, LinkError},
    shard::Term,
    wire::{BLOBS_PER_LIST, Reply, Request},
};

/// The other process brings a blob to disk before it answers.
const STORE_LIMIT: Duration = Duration::from_secs(30);
/// What came damaged is asked for again after this time.
const DAMAGED_PAUSE: Duration = Duration::from_secs(300);
/// After so many blobs that cannot be kept a look is over: most of each has crossed the network for nothing.
const MAX_UNKEPT: usize = 4;
/// From this size on a blob is brought to disk before it has its name. Values of tasks are smaller, mostly,
/// and many.
const SYNCED_BYTES: u64 = 64 << 10;
/// A blob larger than this is copied beside the others: at 100 Mbit/s it takes more than five seconds.
const LARGE_BYTES: u64 = 64 << 20;
/// How long a process that has begun to serve waits for one that follows before a blob that it lacks counts as
/// lost. Machines that are started together do not come together; what a task gave is made again then.
const STANDBY_PATIENCE: Duration = Duration::from_secs(30);
/// What to do about a standby that cannot have all blobs.
const LACKING_HINT: &str = "make room on the disk of this process: if the one that serves ends now, values of tasks and models that are only there are lost";

/// Starts to fetch what the primary has, unless that goes on already. Ends when this process follows no more.
pub(super) fn run(shared: &Arc<Shared>) {
    let (mut lacking, mut outage) = (MissingBlobs::default(), OutageLogger::default());
    let kind = mirroring::Kind { what: "blobs", thread: "ps-mirror", is_running: |shared| &shared.mirroring };
    mirroring::run(shared, kind, move |shared, primary, term, looking| {
        let follows = || shared.role.standby_term().is_some();
        let fetched = fetch_missing(shared, primary, follows, &mut lacking, looking);
        note(shared, term, fetched, primary, &mut outage);
    });
}

/// Fetches, once, what a process has that has just begun to follow this one: if it served before, the values
/// that it was given last are nowhere else.
pub(super) fn fetch_from_new_standby(shared: &Arc<Shared>, standby: &ShardPeer) {
    let (held, standby) = (shared.clone(), standby.clone());
    let fetch = move || {
        let follows = || held.role.standby().is_some_and(|now| now.term == standby.term);
        let mut lacking = MissingBlobs::default();
        while follows() && held.stopping().is_ok() {
            let mut looking = Duration::ZERO;
            match fetch_missing(&held, &standby.address, follows, &mut lacking, &mut looking) {
                Ok(Look::All) => return,
                Ok(Look::Unfinished) | Err(LinkError::Broken(_)) => {}
                Err(error) => {
                    let error = error.into_error(&standby.address);
                    return warn!(%error, "this process lacks blobs of the one that follows it: they are fetched when they are asked for");
                }
            }
            thread::sleep(pause_after(looking));
        }
    };
    if let Err(error) = threads::spawn("ps-mirror-back", fetch) {
        warn!(%error, hint = NoThread::HINT, "no thread that fetches blobs of the process that follows");
    }
}

/// Says what this process is worth. A primary that cannot be reached changes nothing: it may be gone, and
/// this process is to serve at once with what it has. What it lacks while the primary is there, nobody else
/// has.
fn note(
    shared: &Shared,
    term: Term,
    fetched: Result<Look, LinkError>,
    primary: &str,
    outage: &mut OutageLogger,
) {
    match fetched {
        Ok(Look::Unfinished) => {}
        Ok(Look::All) => {
            shared.role.set_mirrored(term, true);
            outage.resolve("blobs of the primary are kept here");
        }
        Err(error @ LinkError::Broken(_)) => {
            debug!(error = %error.into_error(primary), "cannot fetch blobs from the primary yet");
        }
        Err(error) => {
            shared.role.set_mirrored(term, false);
            outage.report(&error.into_error(primary), LACKING_HINT);
        }
    }
}

/// Blobs that are not here for a reason of their own, and hold up no others.
#[derive(Default)]
struct MissingBlobs {
    /// Those that the primary could not give as they are named: after a power cut some may be torn. They are
    /// asked for again after a while.
    since: HashMap<ContentDigest, Instant>,
    /// At this one the connection broke last time.
    suspect: Option<ContentDigest>,
    /// Those that this process could not keep last time: they come last.
    unkept: HashSet<ContentDigest>,
    /// One that is large, and the thread that copies it.
    large: Option<(ContentDigest, JoinHandle<Result<bool, LinkError>>)>,
}

/// How a look has ended without a fault.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// All that was missing is here.
    All,
    /// A large one is still on its way.
    Unfinished,
}

impl MissingBlobs {
    /// Whether it is too early to ask for it again.
    fn holds(&self, digest: &ContentDigest) -> bool {
        self.since.get(digest).is_some_and(|since| since.elapsed() < DAMAGED_PAUSE)
    }

    /// What became of the large one, once its thread has ended.
    fn end_of_large(&mut self) -> Option<(ContentDigest, Result<bool, LinkError>)> {
        let (digest, thread) = self.large.take_if(|(_, thread)| thread.is_finished())?;
        let copied = thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked").into()));
        Some((digest, copied))
    }

    fn is_copying(&self, digest: &ContentDigest) -> bool {
        self.large.as_ref().is_some_and(|(large, _)| large == digest)
    }

    /// Notes what became of one. Some: this process could not keep it, while a smaller one may find room
    /// here. An error ends the look.
    fn judge(
        &mut self,
        digest: ContentDigest,
        copied: Result<bool, LinkError>,
        primary: &str,
    ) -> Result<Option<LinkError>, LinkError> {
        match copied {
            Ok(_) => drop(self.since.remove(&digest)),
            // All of it was read: the connection goes on.
            Err(error @ LinkError::Fault(ShardFault::Invalid { .. })) => self.note(digest, error, primary),
            Err(LinkError::Broken(error)) => return Err(self.suspect(digest, error, primary)),
            Err(error @ LinkError::Fault(_)) => {
                self.unkept.insert(digest);
                return Ok(Some(error));
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// The connection broke at this one, maybe because its file cannot be read: it comes last from now on,
    /// and is damaged if that happens again.
    fn suspect(&mut self, digest: ContentDigest, error: io::Error, primary: &str) -> LinkError {
        if self.suspect.replace(digest) == Some(digest) {
            let same = io::Error::new(error.kind(), error.to_string());
            self.note(digest, LinkError::Broken(same), primary);
        }
        LinkError::Broken(error)
    }

    fn note(&mut self, digest: ContentDigest, error: LinkError, primary: &str) {
        if self.since.insert(digest, Instant::now()).is_none() {
            let (blob, error) = (digest, error.into_error(primary));
            warn!(%blob, %error, "a blob of the primary is damaged, or cannot be read there: it is not on this process");
        }
    }
}

/// What the other one lacks stays: only the engine says what nobody needs, to both. `goes_on`: whether that
/// one is still the other process of the shard. `looking`: how long it took to find out what is missing,
/// without the copying.
fn fetch_missing(
    shared: &Arc<Shared>,
    primary: &str,
    goes_on: impl Fn() -> bool,
    lacking: &mut MissingBlobs,
    looking: &mut Duration,
) -> Result<Look, LinkError> {
    let started = Instant::now();
    let mut link = Link::open_shard(primary, shared.here, &shared.token, PEER_LIMIT)?;
    let mut missing = Vec::new();
    let listed = pages(BLOBS_PER_LIST, |first| list(&mut link, first))?;
    for digest in &listed {
        if shared.blobs.stat(digest).map_err(LinkError::Fault)?.is_none() && !lacking.holds(digest) {
            missing.push(*digest);
        }
    }
    let comes_last =
        |digest: &ContentDigest| lacking.suspect == Some(*digest) || lacking.unkept.contains(digest);
    missing.sort_by_key(comes_last);
    lacking.unkept.clear();
    let mut first_fault = None;
    if !lacking.since.is_empty() {
        let listed: HashSet<ContentDigest> = listed.into_iter().collect();
        lacking.since.retain(|digest, _| listed.contains(digest));
    }
    *looking = started.elapsed();
    let ended = lacking.end_of_large();
    if let Some((digest, copied)) = ended {
        missing.retain(|other| *other != digest);
        first_fault = lacking.judge(digest, copied, primary)?;
    }
    for digest in missing {
        if !goes_on() || shared.stopping().is_err() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        if lacking.is_copying(&digest) {
            continue;
        }
        let copied = match stat(&mut link, digest) {
            // Others wait for none that takes minutes; of such there is one at a time.
            Ok(Some(bytes)) if bytes > LARGE_BYTES => {
                if lacking.large.is_none() {
                    lacking.large = Some((digest, copy_beside(shared, primary, digest)?));
                }
                continue;
            }
            Ok(Some(bytes)) => copy_of(shared, &mut link, digest, bytes),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        if let Some(fault) = lacking.judge(digest, copied, primary)? {
            first_fault.get_or_insert(fault);
            if lacking.unkept.len() == MAX_UNKEPT {
                break;
            }
            // The rest of this one is on its way over the connection.
            link = Link::open_shard(primary, shared.here, &shared.token, PEER_LIMIT)?;
        }
    }
    match first_fault {
        Some(fault) => Err(fault),
        None if lacking.large.is_some() => Ok(Look::Unfinished),
        None => Ok(Look::All),
    }
}

/// Copies one in a thread of its own.
fn copy_beside(
    shared: &Arc<Shared>,
    primary: &str,
    digest: ContentDigest,
) -> io::Result<JoinHandle<Result<bool, LinkError>>> {
    let (shared, primary) = (shared.clone(), primary.to_owned());
    let work = move || {
        copy(&shared, &mut Link::open_shard(&primary, shared.here, &shared.token, PEER_LIMIT)?, digest)
    };
    Ok(threads::spawn("ps-mirror-large", work)?)
}

/// All digests, asked for in pages: `page` gives the lowest from one on, `whole` of them where there may be
/// more.
fn pages<E>(
    whole: usize,
    mut page: impl FnMut(ContentDigest) -> Result<Vec<ContentDigest>, E>,
) -> Result<Vec<ContentDigest>, E> {
    let (mut all, mut first) = (Vec::new(), Some(ContentDigest::LOWEST));
    while let Some(asked) = first {
        let more = page(asked)?;
        first = more.iter().max().filter(|_| more.len() >= whole).and_then(next_digest);
        all.extend(more);
    }
    Ok(all)
}

/// The lowest digest above this one, in the order of bytes; `None`: this is the highest.
fn next_digest(digest: &ContentDigest) -> Option<ContentDigest> {
    let mut next = *digest.as_bytes();
    let last = next.iter().rposition(|byte| *byte < u8::MAX)?;
    next[last] += 1;
    next[last + 1..].fill(0);
    Some(ContentDigest::from_bytes(next))
}

/// One page, from `first` on.
fn list(link: &mut Link, first: ContentDigest) -> Result<Vec<ContentDigest>, LinkError> {
    let max_bytes = (BLOBS_PER_LIST * size_of::<ContentDigest>()) as u64;
    let body = ask_for_list(link, &Request::ListBlobs { first }, &Reply::BlobList, max_bytes)?;
    Ok(body.as_chunks().0.iter().copied().map(ContentDigest::from_bytes).collect())
}

/// A fault of the other process.
fn of_peer(error: LinkError) -> LinkError {
    match error {
        LinkError::Fault(fault) => LinkError::Fault(ShardFault::Invalid { what: fault.to_string() }),
        other => other,
    }
}

/// How large a blob of the other process is; `None` if it is not there.
fn stat(link: &mut Link, digest: ContentDigest) -> Result<Option<u64>, LinkError> {
    link.stat_blob(digest).map_err(of_peer)
}

/// Copies one blob from the other process; false if it is not there. It is invalid if that process cannot
/// give it; another fault is one of this process.
fn copy(shared: &Shared, link: &mut Link, digest: ContentDigest) -> Result<bool, LinkError> {
    match stat(link, digest)? {
        Some(total) => copy_of(shared, link, digest, total),
        None => Ok(false),
    }
}

fn copy_of(shared: &Shared, link: &mut Link, digest: ContentDigest, total: u64) -> Result<bool, LinkError> {
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
    // What has a name is believed to be whole from then on. Small ones are looked at where they are used.
    let durability = if total < SYNCED_BYTES { Durability::Soon } else { Durability::Now };
    shared.blobs.keep_checked(incoming, &digest, durability).map_err(LinkError::Fault)?;
    Ok(true)
}

/// Looks for a blob that is not here on the other process of the shard, if this one serves beside such.
/// Whether it is here now. That one may have served until a moment ago, with values that this one had not
/// fetched yet: until it had the time to come back, none of them is lost.
pub(super) fn fetch_from_standby(shared: &Shared, digest: ContentDigest) -> Result<bool, ShardFault> {
    if shared.role.serves_beside_another_for().is_none() {
        return Ok(false);
    }
    let _alone = shared.blob_fetches.begin(digest);
    // Who came first may have fetched it, or have waited until the other process was let go.
    if shared.blobs.stat(&digest)?.is_some() {
        return Ok(true);
    }
    let Some(served_for) = shared.role.serves_beside_another_for() else { return Ok(false) };
    let cause = match shared.role.standby() {
        None => "it has not come back".to_owned(),
        Some(standby) => {
            let fetch = || {
                copy(
                    shared,
                    &mut Link::open_shard(&standby.address, shared.here, &shared.token, PEER_LIMIT)?,
                    digest,
                )
            };
            match fetch() {
                Ok(is_here) => return Ok(is_here),
                Err(error) => error.into_error(&standby.address).to_string(),
            }
        }
    };
    debug!(blob = %digest, cause, "cannot ask the other process for a blob");
    match served_for < STANDBY_PATIENCE {
        true => Err(ShardFault::SecondAway { digest, cause }),
        false => Ok(false),
    }
}

/// Gives a blob to the process that follows this one before it is acknowledged to anybody. One that cannot
/// take it now fetches it later.
pub(super) fn send_to_standby(shared: &Shared, digest: ContentDigest) {
    let Some(standby) = shared.role.standby() else { return };
    if let Err(error) = send(shared, &standby.address, digest) {
        warn!(error = %error.into_error(&standby.address), "the standby has not got a blob yet");
    }
}

fn send(shared: &Shared, address: &str, digest: ContentDigest) -> Result<(), LinkError> {
    let mut file = File::open(shared.blobs.path(&digest))?;
    let bytes = file.metadata()?.len();
    let mut link = Link::open_shard(address, shared.here, &shared.token, PEER_LIMIT)?;
    link.put_blob(&Request::MirrorBlob { digest }, digest, bytes, Some(STORE_LIMIT), |channel| {
        in_pieces(shared, bytes, |piece| {
            file.read_exact(piece)?;
            channel.write_all(piece)
        })
    })
}

#[cfg(test)]
mod tests;
