//! Telling the standby what changes, one thread for each job.
//!
//! The thread sends a copy of the job and then every change, in the order in which it was made. It asks for an answer after
//! each run of changes, and those who wait for the standby are woken by it. Any failure gives the standby up, whole.

use std::{
    io::Write,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::ShardPeer;
use tracing::{info, warn};

use super::{Shared, snapshot::SHARD_ITSELF};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    shard::{Batch, JobShard, ReplicaOp, Term},
    wire::{Reply, Request, SessionKey},
};

/// A standby that takes or says nothing for this long is lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// The same while it takes the copy into its memory.
const COPY_LIMIT: Duration = Duration::from_secs(30);
/// A standby that is told nothing is asked for a sign of life this often.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// Starts to tell this standby about a job.
pub(super) fn start(shared: &Arc<Shared>, job: &Arc<JobShard>, standby: &ShardPeer) {
    let (held, followed, peer) = (shared.clone(), job.clone(), standby.clone());
    let run = move || {
        if let Err(error) = follow(&held, &followed, &peer) {
            let waits = followed.lose_replica(peer.term);
            let error = error.into_error(&peer.address);
            warn!(job = %followed.job(), %error, waits, "the process that follows is lost");
            held.role.report_lost(peer.term);
        }
    };
    if let Err(error) = thread::Builder::new().name("ps-replicate".into()).spawn(run) {
        warn!(job = %job.job(), %error, "no thread that tells a standby about a job");
        shared.role.report_lost(standby.term);
    }
}

/// Starts to tell the standby, if there is one, about a job that has just come.
pub(super) fn start_if_followed(shared: &Arc<Shared>, job: &Arc<JobShard>) {
    if let Some(standby) = shared.role.standby() {
        start(shared, job, &standby);
    }
}

fn follow(shared: &Shared, job: &JobShard, peer: &ShardPeer) -> Result<(), LinkError> {
    let term = peer.term;
    if !pause(shared, job, term) {
        return Ok(());
    }
    let mut link = Link::open(&peer.address, &shared.token, SILENCE_LIMIT)?;
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    let session =
        SessionKey { job: job.job().clone(), generation: job.generation(), incarnation: SHARD_ITSELF };
    link.ask(&Request::Replicate { session, term })?;
    acknowledged(&mut link)?;
    let started = Instant::now();
    let copy = job.begin_replica(term)?;
    let bytes = copy.len();
    link.channel().write_all(&copy)?;
    drop(copy);
    link.set_read_timeout(Some(COPY_LIMIT))?;
    acknowledged(&mut link)?;
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    job.set_replica_in_step(term);
    let took_ms = started.elapsed().as_millis() as u64;
    info!(job = %job.job(), address = peer.address, bytes, took_ms, "a job has a backup");
    shared.role.backup_in_step();
    loop {
        match job.next_for_replica(term, PING_INTERVAL) {
            Batch::Over => return Ok(()),
            Batch::Idle => {
                shared.stopping()?;
                ReplicaOp::Ping.entry().write(link.channel())?;
                acknowledged(&mut link)?;
            }
            Batch::Entries(entries) => {
                entries.iter().try_for_each(|entry| entry.write(link.channel()))?;
                // Each change but a chunk is answered by itself.
                for _ in entries.iter().filter(|entry| entry.op.is_awaited()) {
                    let number = acknowledged(&mut link)?;
                    job.acknowledge_replica(term, number);
                }
            }
        }
    }
}

/// Waits as long as backups that failed before ask for. False: this one is not wanted any more.
fn pause(shared: &Shared, job: &JobShard, term: Term) -> bool {
    loop {
        let wanted = shared.role.standby().is_some_and(|standby| standby.term == term);
        if !wanted || job.has_ended() || shared.stopping().is_err() {
            return false;
        }
        let left = shared.role.backup_pause();
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(PING_INTERVAL));
    }
}

/// Number of the newest change that the standby has.
fn acknowledged(link: &mut Link) -> Result<u64, LinkError> {
    match link.answer()? {
        (Reply::Replicated { number }, 0) => Ok(number),
        (reply, _) => Err(unexpected_reply(&reply)),
    }
}
