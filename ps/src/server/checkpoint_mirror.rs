//! The checkpoints of a shard lie on both of its processes. Each writes what it holds when the engine says so; what was written
//! before a process came, the one that follows fetches from the one that serves.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Read},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::ShardFault;
use syncline_scheduler::ids::RunId;
use tracing::{debug, info, warn};

use super::{
    Shared,
    blob_mirror::{PEER_LIMIT, in_pieces},
    blobs::send_file,
    checked_file::DIGEST_BYTES,
    checkpoints,
    connection::Connection,
    snapshot::SHARD_ITSELF,
    standby_files,
};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    transport::Duplex,
    wire::{Digest, Reply, Request, SessionKey},
};

/// Longest list that is read: some hundred thousand names.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// What could not be copied, because it is damaged there or finds no room here, is asked for again after this time.
const FAILED_PAUSE: Duration = Duration::from_secs(60);

/// A shard's part of a checkpoint that is on disk. The generation says nothing but of which job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct KeptCheckpoint {
    pub run: RunId,
    pub number: u64,
}

/// What this process lacks of the checkpoints of the one that it follows.
#[derive(Default)]
pub(super) struct CheckpointMirror {
    /// Missing at the last look: what is missing only once is about to be written here.
    missing: HashSet<KeptCheckpoint>,
    failed: HashMap<KeptCheckpoint, Instant>,
}

impl CheckpointMirror {
    /// Fetches what has been missing since the last look. `looking` grows by the time that it took to find out what that is.
    pub(super) fn look(&mut self, shared: &Shared, primary: &str, looking: &mut Duration) {
        match self.fetch_missing(shared, primary, looking) {
            // As with blobs: a primary that is gone changes nothing.
            Err(error) => debug!(error = %error.into_error(primary), "cannot fetch checkpoints"),
            Ok(0) => {}
            Ok(fetched) => info!(fetched, "checkpoints of the primary are kept here"),
        }
    }

    fn fetch_missing(
        &mut self,
        shared: &Shared,
        primary: &str,
        looking: &mut Duration,
    ) -> Result<usize, LinkError> {
        let started = Instant::now();
        let mut link = Link::open(primary, &shared.token, PEER_LIMIT)?;
        let listed = list(&mut link)?;
        self.failed.retain(|kept, since| listed.contains(kept) && since.elapsed() < FAILED_PAUSE);
        let is_missing = |kept: &KeptCheckpoint| {
            !checkpoints::is_kept(shared, kept) && !standby_files::works_for(shared, &kept.run)
        };
        let missing: HashSet<KeptCheckpoint> = listed.into_iter().filter(is_missing).collect();
        let before = std::mem::replace(&mut self.missing, missing);
        let due = self.missing.iter().filter(|kept| before.contains(kept) && !self.failed.contains_key(kept));
        *looking += started.elapsed();
        let mut fetched = 0;
        for kept in due.cloned().collect::<Vec<_>>() {
            if shared.role.standby_term().is_none() || shared.stopping().is_err() {
                break;
            }
            match copy(shared, &mut link, &kept) {
                Ok(()) => fetched += 1,
                Err(LinkError::Fault(fault)) => {
                    warn!(job = %kept.run.job, number = kept.number, error = %fault, "cannot keep a checkpoint of the primary here as well");
                    self.failed.insert(kept, Instant::now());
                    // The rest of it may be on its way over the connection.
                    link = Link::open(primary, &shared.token, PEER_LIMIT)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(fetched)
    }
}

fn list(link: &mut Link) -> Result<HashSet<KeptCheckpoint>, LinkError> {
    link.ask(&Request::ListCheckpoints)?;
    let bytes = match link.answer()? {
        (Reply::CheckpointList, bytes) if bytes <= MAX_LIST_BYTES => bytes,
        (reply, _) => return Err(unexpected_reply(&reply)),
    };
    let mut body = vec![0; bytes as usize];
    link.read_body(&mut body)?;
    let listed: Vec<KeptCheckpoint> = postcard::from_bytes(&body).map_err(io::Error::other)?;
    Ok(listed.into_iter().collect())
}

/// Copies one that the primary still has. It is kept if it is whole: its end says what all before it must be.
fn copy(shared: &Shared, link: &mut Link, kept: &KeptCheckpoint) -> Result<(), LinkError> {
    let session = SessionKey { run: kept.run.clone(), incarnation: SHARD_ITSELF };
    link.ask(&Request::GetCheckpoint { session, number: kept.number })?;
    let bytes = match link.answer() {
        Ok((Reply::Blob { total }, bytes)) if total == bytes => bytes,
        Ok((reply, _)) => return Err(unexpected_reply(&reply)),
        Err(LinkError::Fault(ShardFault::NoCheckpoint { .. })) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut file = checkpoints::begin(shared, &kept.run).map_err(LinkError::Fault)?;
    in_pieces(shared, bytes.saturating_sub(DIGEST_BYTES), |piece| {
        link.read_body(piece)?;
        file.write(piece).map_err(LinkError::Fault)
    })?;
    let mut digest = Digest::default();
    link.channel().read_exact(&mut digest[..bytes.min(DIGEST_BYTES) as usize])?;
    checkpoints::keep_copy(shared, kept, file, &digest).map_err(LinkError::Fault)
}

/// Sends the names of all that is here.
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
