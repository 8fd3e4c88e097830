//! The checkpoints of a shard lie on both of its processes. Each writes what it holds when the engine says so; what was written
//! before a process came, the one that follows fetches from the one that serves, in a thread of its own: one may take an hour.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, Read},
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::{OutageLogger, ShardFault};
use syncline_scheduler::ids::RunId;
use tracing::{debug, info, warn};

use super::{
    Shared,
    blobs::send_file,
    checked_file::DIGEST_BYTES,
    checkpoints,
    connection::Connection,
    mirroring::{self, PEER_LIMIT, in_pieces},
    snapshot::SHARD_ITSELF,
    standby_files,
};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    shard::{Term, lock},
    transport::Duplex,
    wire::{Digest, Reply, Request, SessionKey},
};

/// Longest list that is read: some hundred thousand names.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// What could not be copied is asked for again after this time; where the disk here took one not, all are.
const FAILED_PAUSE: Duration = Duration::from_secs(60);
/// What to do about a standby that cannot ask for checkpoints.
const LACKING_HINT: &str = "see the log of the process that serves this shard: until they are here, checkpoints of before are only there";

/// A shard's part of a checkpoint that is on disk. The generation says nothing but of which job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct KeptCheckpoint {
    pub run: RunId,
    pub number: u64,
}

/// Those that a process has, with when they were written.
pub(super) type KeptCheckpoints = BTreeMap<KeptCheckpoint, SystemTime>;

/// What other threads know of the one that fetches.
#[derive(Default)]
pub(super) struct Fetching {
    is_running: AtomicBool,
    current: Mutex<Option<KeptCheckpoint>>,
}

impl Fetching {
    /// Whoever removes checkpoints says so: what of them is being fetched is not kept. The engine tells the process that serves
    /// first, so that nothing is asked for afterwards that is still there.
    pub(super) fn give_up(&self, is_removed: impl FnOnce(&KeptCheckpoint) -> bool) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(is_removed) {
            *current = None;
        }
    }

    /// Whether it is still to be kept.
    pub(super) fn is_wanted(&self, kept: &KeptCheckpoint) -> bool {
        lock(&self.current).as_ref() == Some(kept)
    }
}

/// Starts to fetch what the primary has, unless that goes on already. Ends when this process follows no more.
pub(super) fn run(shared: &Arc<Shared>) {
    let (mut mirror, mut outage) = (CheckpointMirror::default(), OutageLogger::default());
    let kind = mirroring::Kind {
        what: "checkpoints",
        thread: "ps-checkpoints",
        is_running: |shared| &shared.fetching.is_running,
    };
    mirroring::run(shared, kind, move |shared, primary, term, looking| {
        match mirror.fetch_missing(shared, primary, term, looking) {
            Ok(_) => outage.resolve("checkpoints of the primary can be asked for"),
            // As with blobs: a primary that is gone changes nothing.
            Err(error @ LinkError::Broken(_)) => {
                debug!(error = %error.into_error(primary), "cannot fetch checkpoints yet");
            }
            Err(error) => outage.report(&error.into_error(primary), LACKING_HINT),
        }
    });
}

/// What this process lacks of the checkpoints of the one that it follows.
#[derive(Default)]
struct CheckpointMirror {
    /// Missing at the last look: what is missing only once is about to be written here.
    missing: HashSet<KeptCheckpoint>,
    failed: HashMap<KeptCheckpoint, Instant>,
    /// When the disk here took one not.
    full_since: Option<Instant>,
}

impl CheckpointMirror {
    /// Fetches what has been missing since the last look, of each job the newest first; how many those were. `looking` grows by the
    /// time that it took to find out.
    fn fetch_missing(
        &mut self,
        shared: &Shared,
        primary: &str,
        term: Term,
        looking: &mut Duration,
    ) -> Result<usize, LinkError> {
        let started = Instant::now();
        let listed = list(&mut Link::open(primary, &shared.token, PEER_LIMIT)?)?;
        self.failed.retain(|kept, since| listed.contains_key(kept) && since.elapsed() < FAILED_PAUSE);
        self.full_since.take_if(|since| since.elapsed() >= FAILED_PAUSE);
        let is_missing = |kept: &KeptCheckpoint| {
            !checkpoints::is_kept(shared, kept) && !standby_files::works_for(shared, &kept.run)
        };
        let missing = listed.keys().filter(|kept| is_missing(kept)).cloned().collect();
        let before = std::mem::replace(&mut self.missing, missing);
        *looking += started.elapsed();
        let mut fetched = 0;
        for (kept, written_at) in listed.iter().rev().filter(|(kept, _)| before.contains(kept)) {
            let follows = shared.role.standby_term() == Some(term) && shared.stopping().is_ok();
            if !follows || self.full_since.is_some() {
                break;
            }
            if self.failed.contains_key(kept) || !is_missing(kept) {
                continue;
            }
            *lock(&shared.fetching.current) = Some(kept.clone());
            let copied = copy(shared, primary, term, kept, *written_at);
            *lock(&shared.fetching.current) = None;
            checkpoints::remove_folder_if_empty(shared, kept);
            match copied {
                Ok(is_kept) => fetched += usize::from(is_kept),
                Err(error) => {
                    let now = Instant::now();
                    self.failed.insert(kept.clone(), now);
                    let LinkError::Fault(fault) = error else { return Err(error) };
                    warn!(job = %kept.run.job, number = kept.number, error = %fault, "cannot keep a checkpoint of the primary here as well");
                    self.full_since = matches!(fault, ShardFault::Io { .. }).then_some(now);
                }
            }
        }
        if fetched > 0 {
            info!(fetched, "checkpoints of the primary are kept here");
        }
        Ok(fetched)
    }
}

fn list(link: &mut Link) -> Result<KeptCheckpoints, LinkError> {
    link.ask(&Request::ListCheckpoints)?;
    let bytes = match link.answer()? {
        (Reply::CheckpointList, bytes) if bytes <= MAX_LIST_BYTES => bytes,
        (reply, _) => return Err(unexpected_reply(&reply)),
    };
    let mut body = vec![0; bytes as usize];
    link.read_body(&mut body)?;
    Ok(postcard::from_bytes(&body).map_err(io::Error::other)?)
}

/// Copies one over a connection of its own. It is kept if it is whole, its end says what all before it must be, and if nobody has
/// removed it meanwhile. An [`ShardFault::Io`] is one of this process.
fn copy(
    shared: &Shared,
    primary: &str,
    term: Term,
    kept: &KeptCheckpoint,
    written_at: SystemTime,
) -> Result<bool, LinkError> {
    let mut link = Link::open(primary, &shared.token, PEER_LIMIT)?;
    let session = SessionKey { run: kept.run.clone(), incarnation: SHARD_ITSELF };
    link.ask(&Request::GetCheckpoint { session, number: kept.number })?;
    let bytes = match link.answer() {
        Ok((Reply::Blob { total }, bytes)) if total == bytes => bytes,
        Ok((reply, _)) => return Err(unexpected_reply(&reply)),
        Err(LinkError::Fault(ShardFault::NoCheckpoint { .. })) => return Ok(false),
        Err(LinkError::Fault(fault)) => {
            return Err(LinkError::Fault(ShardFault::Invalid { what: fault.to_string() }));
        }
        Err(error) => return Err(error),
    };
    let begun = checkpoints::begin_copy(shared, kept).map_err(LinkError::Fault)?;
    let Some(mut file) = begun else { return Ok(false) };
    in_pieces(shared, bytes.saturating_sub(DIGEST_BYTES), |piece| {
        if shared.role.standby_term() != Some(term) || !shared.fetching.is_wanted(kept) {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        link.read_body(piece)?;
        file.write(piece).map_err(LinkError::Fault)
    })?;
    let mut digest = Digest::default();
    link.channel().read_exact(&mut digest[..bytes.min(DIGEST_BYTES) as usize])?;
    checkpoints::keep_copy(shared, kept, file, &digest, written_at).map_err(LinkError::Fault)
}

/// Sends what is here.
pub(super) fn serve_list<D: Duplex>(shared: &Shared, connection: &mut Connection<'_, D>) -> io::Result<()> {
    let listed = match checkpoints::list(shared) {
        Ok(listed) => postcard::to_stdvec(&listed).map_err(io::Error::other)?,
        Err(fault) => return connection.answer(Err(fault)),
    };
    connection.reply_corked(&Reply::CheckpointList, listed.len() as u64)?;
    connection.duplex.write_all(&listed)
}

/// Sends one as it is.
pub(super) fn serve_get<D: Duplex>(
    shared: &Shared,
    connection: &mut Connection<'_, D>,
    run: &RunId,
    number: u64,
) -> io::Result<()> {
    match checkpoints::open(shared, run, number) {
        Ok((mut file, bytes)) => send_file(connection, &mut file, bytes, bytes),
        Err(fault) => connection.answer(Err(fault)),
    }
}

#[cfg(test)]
mod tests;
