//! The checkpoints of a shard lie on both of its processes. Each writes what it holds when the engine says
//! so; what was written before a process came, the one that follows fetches from the one that serves, in a
//! thread of its own: one may take an hour. What the one that serves lacks it [asks the other one
//! for](super::checkpoint_copy::or_from_standby) when it needs it.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use syncline_rpc::{OutageLogger, ShardFault};
use syncline_scheduler::ids::RunId;
use tracing::{debug, info, warn};

use super::{
    Shared,
    blobs::send_file,
    checkpoint_copy::{self, KeptCheckpoint},
    checkpoints,
    connection::Connection,
    mirroring::{self, PEER_LIMIT},
    standby_files,
};
use crate::{
    client::{Link, LinkError},
    shard::Term,
    transport::Duplex,
    wire::Reply,
};

/// What could not be copied is asked for again after this time; where the disk here took one not, all are.
const FAILED_PAUSE: Duration = Duration::from_secs(60);
/// What to do about a standby that cannot ask for checkpoints.
const LACKING_HINT: &str = "see the log of the process that serves this shard: until they are here, checkpoints of before are only there";

/// Starts to fetch what the primary has, unless that goes on already. Ends when this process follows no more.
pub(super) fn run(shared: &Arc<Shared>) {
    let (mut mirror, mut outage) = (CheckpointMirror::default(), OutageLogger::default());
    let kind = mirroring::Kind {
        what: "checkpoints",
        thread: "ps-checkpoints",
        is_running: |shared| &shared.fetching.is_mirroring,
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
    /// Fetches what has been missing since the last look, of each job the newest first; how many those were.
    /// `looking` grows by the time that it took to find out.
    fn fetch_missing(
        &mut self,
        shared: &Shared,
        primary: &str,
        term: Term,
        looking: &mut Duration,
    ) -> Result<usize, LinkError> {
        let started = Instant::now();
        let listed =
            checkpoint_copy::list(&mut Link::open_shard(primary, shared.here, &shared.token, PEER_LIMIT)?)?;
        self.failed.retain(|kept, since| listed.contains_key(kept) && since.elapsed() < FAILED_PAUSE);
        self.full_since.take_if(|since| since.elapsed() >= FAILED_PAUSE);
        let is_missing = |kept: &KeptCheckpoint| {
            !checkpoints::is_kept(shared, kept) && !standby_files::works_for(shared, &kept.run)
        };
        let missing = listed.keys().filter(|kept| is_missing(kept)).cloned().collect();
        let before = std::mem::replace(&mut self.missing, missing);
        *looking += started.elapsed();
        let lacks = |kept: &KeptCheckpoint| before.contains(kept) && is_missing(kept);
        let note_lacking = || {
            let lacking = listed.keys().filter(|kept| lacks(kept)).count();
            shared.role.set_lacking_checkpoints(term, lacking as u64);
        };
        note_lacking();
        let mut fetched = 0;
        for (kept, written_at) in listed.iter().rev().filter(|(kept, _)| before.contains(kept)) {
            let follows = shared.role.standby_term() == Some(term) && shared.stopping().is_ok();
            if !follows || self.full_since.is_some() {
                break;
            }
            if self.failed.contains_key(kept) || !is_missing(kept) {
                continue;
            }
            let still_follows = || shared.role.standby_term() == Some(term);
            match checkpoint_copy::copy(shared, primary, kept, *written_at, still_follows) {
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
            note_lacking();
            info!(fetched, "checkpoints of the primary are kept here");
        }
        Ok(fetched)
    }
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
