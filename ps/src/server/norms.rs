//! Fetching the other shards' sums of squares of each round, see [`shard::clip`](crate::shard).
//!
//! One thread per other shard asks for one round after the other; the peer answers as soon as it knows the
//! sum. A broken connection is opened again: sums do not change, so every request may be repeated. The
//! threads end with the job.

use std::{
    sync::{Arc, PoisonError},
    thread,
    time::Duration,
};

use syncline_rpc::{ShardFault, ShardPosition, threads};
use tracing::{debug, warn};

use super::{Shared, connection::Connection, pull::PresenceCheck, snapshot::SHARD_ITSELF};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    shard::{JobShard, JobTable},
    transport::Duplex,
    wire::{Reply, Request, SessionKey},
};

/// Bounds connecting and every read; a shard that waits for a round sends a frame every second.
const PEER_LIMIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Starts the threads for a job that was opened, restored, or read because an engine asks for it, if its
/// rounds are clipped over several shards. Once they run, nothing more is started.
pub(super) fn follow_peers(shared: &Arc<Shared>, job: &Arc<JobShard>) -> Result<(), ShardFault> {
    if !job.needs_peer_norms() || job.set_follows_peers(true) {
        return Ok(());
    }
    for shard in (0..job.shards().len() as u32).filter(|shard| *shard != job.index()) {
        let (shared, followed) = (shared.clone(), job.clone());
        let follow = move || follow_peer(&shared, &followed, shard);
        threads::spawn("ps-norms", follow).map_err(|e| {
            job.set_follows_peers(false);
            let what = "cannot start a thread that follows another shard".into();
            ShardFault::Io { what, cause: e.to_string() }
        })?;
    }
    Ok(())
}

fn follow_peer(shared: &Shared, job: &JobShard, shard: u32) {
    shared.begun.wait();
    let mut round = job.version();
    let mut pause = FIRST_PAUSE;
    while shared.stopping().is_ok() && !job.is_over() {
        // Looked up anew: a shard may have moved.
        let Some(address) = job.shards().get(shard as usize).cloned() else { return };
        let before = round;
        match fetch_rounds(shared, job, shard, &address, &mut round) {
            LinkError::Fault(ShardFault::UnknownJob { .. } | ShardFault::WrongGeneration { .. }) => {
                debug!(%address, job = %job.job(), "that shard has not opened the job yet");
            }
            LinkError::Broken(cause) => {
                debug!(%address, %cause, job = %job.job(), "connection to a shard broke")
            }
            LinkError::Fault(ShardFault::Closed { .. }) => {}
            other => {
                warn!(error = %other.into_error(&address), job = %job.job(), "cannot fetch norms from another shard")
            }
        }
        pause = if round > before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        thread::sleep(pause);
    }
}

/// Fetches one round after the other until an error, or until another process serves that shard.
fn fetch_rounds(shared: &Shared, job: &JobShard, shard: u32, address: &str, round: &mut u64) -> LinkError {
    let session = SessionKey { run: job.run().clone(), incarnation: SHARD_ITSELF };
    let mut fetch = || -> Result<(), LinkError> {
        let position = ShardPosition { index: shard, count: shared.here.count };
        let mut link = Link::open_shard(address, position, &shared.token, PEER_LIMIT)?;
        link.set_read_timeout(Some(PEER_LIMIT))?;
        loop {
            link.ask(&Request::Norm { session: session.clone(), round: *round })?;
            let squares = loop {
                match link.answer_or_sign()? {
                    Some((Reply::Norm { squares }, 0)) => break squares,
                    Some((reply, _)) => return Err(unexpected_reply(&reply)),
                    // That one waits for its round, of a job that may be over here, or because this shard
                    // stops.
                    None if job.is_over() || shared.stopping().is_err() => return Ok(()),
                    // It serves that shard no more, and may wait for a round that it is never ordered.
                    None if !job.has_shard_at(shard, address) => return Ok(()),
                    None => {}
                }
            };
            // A stop waits for us here, and nothing comes in behind it.
            let _open = shared.norm_intake.read().unwrap_or_else(PoisonError::into_inner);
            shared.stopping()?;
            job.receive_norm(shard, *round, squares).map_err(LinkError::Fault)?;
            *round = (*round + 1).max(job.version());
        }
    };
    match fetch() {
        Err(error) => error,
        Ok(()) => LinkError::Broken(std::io::ErrorKind::Interrupted.into()),
    }
}

/// Answers another shard.
pub(super) fn serve<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
    round: u64,
) -> std::io::Result<()> {
    let job = match jobs.find(&session.run) {
        Ok(job) => job,
        Err(fault) => return connection.answer(Err(fault)),
    };
    let mut presence = PresenceCheck::default();
    let squares = job.wait_norm(round, || presence.is_there(connection));
    if squares.is_ok() {
        // What the standby lacks may come otherwise if it serves: the other shard would shorten another mean.
        presence.until(connection, |is_there| job.confirm(is_there))?;
    }
    connection.answer_about(&job, squares.map(|squares| Reply::Norm { squares }))
}

#[cfg(test)]
mod tests {
    use syncline_rpc::ReplicaRole;
    use syncline_scheduler::ids::EngineEpoch;

    use super::{
        super::{
            pull::tests::shard_that_clips,
            rig::{Two, follow_orders},
        },
        *,
    };
    use crate::waiting::until;

    /// It may not have heard yet that it is none that serves, and wait for a round that it is never ordered.
    #[test]
    fn who_serves_a_shard_no_more_is_left_while_it_says_that_it_waits_for_its_round() {
        let mut two = Two::new(|second| second.here = ShardPosition { index: 1, count: 2 });
        Arc::get_mut(&mut two.first).unwrap().here.count = 2;
        follow_orders(&two.second, ReplicaRole::Primary { term: 1 }, None);
        let [job, other] = [(); 2].map(|()| Arc::new(shard_that_clips(&[0.0; 3], Some(1.0))));
        two.second.jobs.restore(other);
        let address = two.address.clone();
        job.set_addresses(&[String::new(), address.clone()]);
        let mut round = job.version();
        let ended = thread::scope(|scope| {
            let fetches = scope.spawn(|| fetch_rounds(&two.first, &job, 1, &address, &mut round));
            until("the other one waits for its round", || two.second.connections.open() > 0);
            job.set_addresses(&[String::new(), "127.0.0.1:1".into()]);
            fetches.join().unwrap()
        });
        assert!(matches!(ended, LinkError::Broken(_)), "{ended:?}");
    }

    #[test]
    fn a_job_that_is_over_is_let_go_of_while_another_shard_waits_for_its_round() {
        let mut two = Two::new(|second| second.here = ShardPosition { index: 1, count: 2 });
        Arc::get_mut(&mut two.first).unwrap().here.count = 2;
        let [job, other] = [(); 2].map(|()| Arc::new(shard_that_clips(&[0.0; 3], Some(1.0))));
        two.second.jobs.restore(other);
        job.set_addresses(&[String::new(), two.address.clone()]);
        two.first.jobs.restore(job.clone());
        follow_peers(&two.first, &job).unwrap();
        until("the other shard waits for its round", || two.second.connections.open() > 0);
        two.first.jobs.close(EngineEpoch(1), job.run()).unwrap();
        until("nobody holds the job but this test", || Arc::strong_count(&job) == 1);
    }
}
