//! Hearing from the other shards how large their parts of a round are, see [`shard::clip`](crate::shard).
//!
//! One thread per other shard asks for one round after the other; the answer comes when the other one knows. So it is
//! on its way the moment it exists. A broken connection is opened again: sums do not change, every question may be
//! repeated. Ends with the job.

use std::{
    sync::{Arc, PoisonError},
    thread,
    time::Duration,
};

use syncline_engine::rpc::ShardFault;
use tracing::{debug, warn};

use super::{Shared, caller::Caller, pull::Presence, snapshot::SHARD_ITSELF};
use crate::{
    client::{Link, Trouble, out_of_place},
    shard::{House, JobShard},
    wire::{At, Duplex, Reply, Request},
};

/// Bounds connecting and every silence; who waits for a round says so every second.
const PEER_LIMIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Begins to hear about a job that was opened or restored, if it needs that.
pub(super) fn hear(shared: &Arc<Shared>, job: &Arc<JobShard>) -> Result<(), ShardFault> {
    if !job.hears_norms() {
        return Ok(());
    }
    for shard in (0..job.shards().len() as u32).filter(|shard| *shard != job.index()) {
        let (shared, job) = (shared.clone(), job.clone());
        let started =
            thread::Builder::new().name("ps-norms".into()).spawn(move || hear_one(&shared, &job, shard));
        started.map_err(|e| ShardFault::Io {
            what: "cannot start a thread that hears another shard".into(),
            cause: e.to_string(),
        })?;
    }
    Ok(())
}

fn hear_one(shared: &Shared, job: &JobShard, shard: u32) {
    let mut round = job.version();
    let mut pause = FIRST_PAUSE;
    while shared.stopping().is_ok() && !job.is_over() {
        // Looked up anew: a shard may have moved.
        let Some(address) = job.shards().get(shard as usize).cloned() else { return };
        let before = round;
        match hear_rounds(shared, job, shard, &address, &mut round) {
            Trouble::Fault(ShardFault::UnknownJob { .. } | ShardFault::WrongGeneration { .. }) => {
                debug!(%address, job = %job.job(), "that shard has not opened the job yet");
            }
            Trouble::Broken(cause) => {
                debug!(%address, %cause, job = %job.job(), "connection to a shard broke")
            }
            Trouble::Fault(ShardFault::Closed { .. }) => {}
            other => {
                warn!(error = %other.into_error(&address), job = %job.job(), "cannot hear another shard")
            }
        }
        pause = if round > before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        thread::sleep(pause);
    }
}

/// Asks for one round after the other until something is in the way.
fn hear_rounds(shared: &Shared, job: &JobShard, shard: u32, address: &str, round: &mut u64) -> Trouble {
    let at = At { job: job.job().clone(), generation: job.generation(), incarnation: SHARD_ITSELF };
    let mut hear = || -> Result<(), Trouble> {
        let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
        link.limit_reads(Some(PEER_LIMIT))?;
        loop {
            link.ask(&Request::Norm { at: at.clone(), round: *round })?;
            let squares = match link.answer()? {
                (Reply::Norm { squares }, 0) => squares,
                (reply, _) => return Err(out_of_place(&reply)),
            };
            // A stop waits for us here, and nothing comes in behind it.
            let _open = shared.hearing.read().unwrap_or_else(PoisonError::into_inner);
            shared.stopping()?;
            job.take_norm(shard, *round, squares).map_err(Trouble::Fault)?;
            *round = (*round + 1).max(job.version());
        }
    };
    match hear() {
        Err(trouble) => trouble,
        Ok(()) => Trouble::Broken(std::io::ErrorKind::Interrupted.into()),
    }
}

/// Answers another shard.
pub(super) fn serve<D: Duplex>(
    house: &House,
    caller: &mut Caller<'_, D>,
    at: &At,
    round: u64,
) -> std::io::Result<()> {
    let mut presence = Presence::default();
    let norm =
        house.find(&at.job, at.generation).and_then(|job| job.wait_norm(round, || presence.look(caller)));
    caller.answer(norm.map(|squares| Reply::Norm { squares }))
}
