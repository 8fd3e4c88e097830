//! Telling the standby what changes, one thread for each job.
//!
//! The thread sends a copy of the job and then every change, in the order in which it was made. It asks for an answer after
//! each run of changes, and those who wait for the standby are woken by it. Any failure gives the standby up, whole; a copy that
//! training would have to wait for is given up alone, and begun again later.

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
/// So much of a copy is sent at once.
const PIECE_BYTES: usize = 1 << 20;
/// A copy that was given up is begun again after this time, doubled with each one in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Starts to tell this standby about a job, unless somebody does.
pub(super) fn start(shared: &Arc<Shared>, job: &Arc<JobShard>, standby: &ShardPeer) {
    if !job.claim_replica(standby.term) {
        return;
    }
    let (held, followed, peer) = (shared.clone(), job.clone(), standby.clone());
    let run = move || {
        loop {
            let outcome = run(&held, &followed, &peer);
            followed.release_replica(peer.term);
            if let Err(error) = outcome {
                let error = error.into_error(&peer.address);
                warn!(job = %followed.job(), %error, "the process that follows is lost");
                return lose(&held, &followed, peer.term);
            }
            // Whoever wanted it again while it ended here was told that somebody does it.
            if !is_wanted(&held, &followed, peer.term) || !followed.claim_replica(peer.term) {
                return;
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("ps-replicate".into()).spawn(run) {
        warn!(job = %job.job(), %error, "no thread that tells a standby about a job");
        job.release_replica(standby.term);
        lose(shared, job, standby.term);
    }
}

/// Gives the standby up. Where the engine has done that already, nobody else says that the job goes on alone.
fn lose(shared: &Shared, job: &JobShard, term: Term) {
    job.lose_replica(term);
    if !shared.role.report_lost(term) {
        job.go_on_without_replica(term);
    }
}

/// Starts to tell the standby, if there is one, about a job that has just come.
pub(super) fn start_if_followed(shared: &Arc<Shared>, job: &Arc<JobShard>) {
    if let Some(standby) = shared.role.standby() {
        start(shared, job, &standby);
    }
}

/// Tells the standby about the job as long as somebody wants that. A copy that training would have had to wait for is begun
/// again later.
fn run(shared: &Shared, job: &JobShard, peer: &ShardPeer) -> Result<(), LinkError> {
    let (mut pause, mut not_before) = (FIRST_PAUSE, Instant::now());
    while wait_to_begin(shared, job, peer.term, not_before) {
        follow(shared, job, peer)?;
        if is_wanted(shared, job, peer.term) {
            let (address, pause_s) = (&peer.address, pause.as_secs());
            warn!(
                job = %job.job(), address, pause_s,
                "the copy of a job for its backup was too slow for what is pushed: it goes on without one until a copy succeeds"
            );
            not_before = Instant::now() + pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    Ok(())
}

/// Follows the job to its end, or until another standby follows, or its copy is given up.
fn follow(shared: &Shared, job: &JobShard, peer: &ShardPeer) -> Result<(), LinkError> {
    let term = peer.term;
    let mut link = Link::open(&peer.address, &shared.token, SILENCE_LIMIT)?;
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    let session =
        SessionKey { job: job.job().clone(), generation: job.generation(), incarnation: SHARD_ITSELF };
    link.ask(&Request::Replicate { session, term })?;
    acknowledged(&mut link)?;
    let started = Instant::now();
    let copy = job.begin_replica(term)?;
    if !is_wanted(shared, job, term) {
        // The engine's word that this process goes on alone may have come before there was anything to give up.
        job.go_on_without_replica(term);
        return Ok(());
    }
    let bytes = copy.len();
    for piece in copy.chunks(PIECE_BYTES) {
        link.channel().write_all(piece)?;
        if !job.replica_copied(term, piece.len()) {
            return Ok(());
        }
    }
    drop(copy);
    link.set_read_timeout(Some(COPY_LIMIT))?;
    acknowledged(&mut link)?;
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    let mut in_step = false;
    loop {
        if !in_step && job.set_replica_in_step(term) {
            in_step = true;
            let took_ms = started.elapsed().as_millis() as u64;
            info!(job = %job.job(), address = peer.address, bytes, took_ms, "a job has a backup");
            shared.role.backup_in_step();
        }
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

/// Whether the standby of this term is still to be told about the job.
fn is_wanted(shared: &Shared, job: &JobShard, term: Term) -> bool {
    let follows = shared.role.standby().is_some_and(|standby| standby.term == term);
    follows && !job.has_ended() && shared.stopping().is_ok()
}

/// Waits as long as backups that failed before ask for, at least until `not_before`. False: this one is not wanted any more.
fn wait_to_begin(shared: &Shared, job: &JobShard, term: Term, not_before: Instant) -> bool {
    while is_wanted(shared, job, term) {
        let own = not_before.saturating_duration_since(Instant::now());
        let left = shared.role.backup_pause().max(own);
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(PING_INTERVAL));
    }
    false
}

/// Number of the newest change that the standby has.
fn acknowledged(link: &mut Link) -> Result<u64, LinkError> {
    match link.answer()? {
        (Reply::Replicated { number }, 0) => Ok(number),
        (reply, _) => Err(unexpected_reply(&reply)),
    }
}
