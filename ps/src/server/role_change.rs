//! What a change of the role of this process brings with it: it serves the jobs that it followed, or gives
//! them up.

use std::{
    sync::{Arc, TryLockError},
    time::Instant,
};

use syncline_rpc::{ReplicaRole, ShardFault, ShardOrders, ShardPeer, threads::lock};
use syncline_scheduler::ids::EngineEpoch;
use tracing::{error, info, warn};

use super::{Shared, blob_mirror, checkpoint_mirror, norms, replication};
use crate::shard::{JobShard, Term};

/// Does what the engine has answered. May block.
pub(super) fn follow_orders(shared: &Arc<Shared>, orders: &ShardOrders) {
    let _whole = lock(&shared.role.following);
    take_role(shared, orders);
    // A promotion does not wait for the disk.
    shared.role.keep_role();
}

fn take_role(shared: &Arc<Shared>, orders: &ShardOrders) {
    let keeper = &shared.role;
    let _alone = match keeper.changing.try_lock() {
        // This process is being promoted, which may take longer than the engine takes a silence for: the next
        // answer counts.
        Err(TryLockError::WouldBlock) => return,
        Err(TryLockError::Poisoned(held)) => held.into_inner(),
        Ok(held) => held,
    };
    // What stops keeps its jobs as they are.
    if shared.stopping().is_err() {
        return;
    }
    let before = lock(&keeper.state).role;
    match orders.role {
        ReplicaRole::Undecided => {}
        ReplicaRole::Primary { term } => {
            match before {
                // An answer that was on its way when the promotion came, or before it.
                Some(ReplicaRole::Primary { term: own }) if own > term => return,
                Some(ReplicaRole::Standby { .. }) => return,
                _ => {}
            }
            let mut state = lock(&keeper.state);
            state.role = Some(orders.role);
            state.serves_since.get_or_insert_with(Instant::now);
            drop(state);
            follow_with_standby(shared, orders.peer.clone());
        }
        ReplicaRole::Standby { term } => {
            if before.is_some_and(|own| own.term() > term) {
                return;
            }
            if !matches!(before, Some(ReplicaRole::Standby { .. })) {
                step_down(shared);
            }
            if before != Some(orders.role) {
                shared.followed.begin(term);
                info!(term, "follows the process that serves this shard");
            }
            let mut state = lock(&keeper.state);
            (state.role, state.peer) = (Some(orders.role), orders.peer.clone());
            drop(state);
            blob_mirror::run(shared);
            checkpoint_mirror::run(shared);
        }
    }
}

/// Gives up the jobs: another process serves them.
fn step_down(shared: &Shared) {
    // Nobody new is served from here on.
    let mut state = lock(&shared.role.state);
    (state.role, state.serves_since) = (None, None);
    drop(state);
    let jobs = shared.jobs.open_jobs().len();
    if jobs > 0 {
        // First of all: whoever waits for something must not be told that the job is over, but ask the other
        // process.
        shared.cut_connections();
        shared.jobs.give_up();
        shared.freed.note();
        warn!(jobs, "another process serves this shard: its jobs go on there");
    }
}

/// Lets this standby follow all jobs, or goes on alone.
fn follow_with_standby(shared: &Arc<Shared>, peer: Option<ShardPeer>) {
    let mut state = lock(&shared.role.state);
    let (old, lost) = (state.peer.take(), state.lost);
    let term = |peer: &Option<ShardPeer>| peer.as_ref().map(|peer| peer.term);
    let is_same = term(&old) == term(&peer);
    state.peer = peer.clone();
    if !is_same {
        state.lost = None;
        state.let_go_at = old.is_some().then(Instant::now);
    }
    drop(state);
    if is_same {
        return;
    }
    if let Some(gone) = lost.or(term(&old)) {
        shared.jobs.open_jobs().iter().for_each(|job| job.go_on_without_standby(gone));
        warn!(term = gone, "goes on without the process that followed");
    }
    if let Some(peer) = peer {
        info!(address = peer.address, "a standby follows");
        let open = shared.jobs.open_jobs();
        // One that is frozen waits for that.
        let is_copied = |job: &Arc<JobShard>| job.is_frozen() || !shared.unclaimed.is_set_aside(job.run());
        open.iter().filter(|job| is_copied(job)).for_each(|job| replication::start(shared, job, &peer));
        blob_mirror::fetch_from_new_standby(shared, &peer);
    }
}

/// Serves, from now on, the jobs that were followed so far. Answers how many there are.
pub(super) fn promote(shared: &Arc<Shared>, epoch: EngineEpoch, term: Term) -> Result<u64, ShardFault> {
    shared.jobs.fence().check(epoch)?;
    let keeper = &shared.role;
    let _alone = lock(&keeper.changing);
    // What is followed is kept by the stop.
    if shared.stopping().is_err() {
        return Err(ShardFault::NotFollowing { term });
    }
    let mut state = lock(&keeper.state);
    match &mut state.role {
        Some(ReplicaRole::Standby { term: own }) if *own < term => {}
        // Of an engine that did not hear that another one had let it serve: it counts on this term.
        Some(ReplicaRole::Primary { term: own }) => {
            *own = term.max(*own);
            drop(state);
            return Ok(shared.jobs.open_jobs().len() as u64);
        }
        _ => return Err(ShardFault::NotFollowing { term }),
    }
    drop(state);
    let jobs = shared.followed.finish();
    let count = jobs.len() as u64;
    for job in jobs {
        job.stop_following();
        // The others wait for what this process would fetch: none of the jobs is lost for want of a thread.
        if let Err(error) = norms::follow_peers(shared, &job) {
            error!(job = %job.job(), %error, "rounds of a job that are clipped will not close here");
        }
        shared.jobs.restore(job);
    }
    let mut state = lock(&keeper.state);
    (state.role, state.peer) = (Some(ReplicaRole::Primary { term }), None);
    state.serves_since = Some(Instant::now());
    drop(state);
    shared.followed.forget_all();
    info!(jobs = count, term, "serves this shard now");
    keeper.urgent.notify_one();
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        sync::atomic::Ordering,
        thread,
    };

    use syncline_rpc::ShardHello;
    use syncline_scheduler::ids::{Generation, Incarnation, RunId, ShardIndex};

    use super::{
        super::{
            connections::ConnectionGuard,
            followed_jobs::FollowedJob,
            pull::tests::shard,
            role::{FIRST_PAUSE, FORGIVEN_AFTER},
            tensor,
        },
        *,
    };
    use crate::{
        codec::Codec,
        shard::ReadCondition,
        transport::{Channel, Socket},
        waiting::until,
        wire::{Reply, Request, SessionKey},
    };

    /// A worker that is told that the job is over drops its task, and nobody gives it another.
    #[test]
    fn who_waits_at_a_process_that_steps_down_is_hung_up_on_and_not_told_that_the_job_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        shared.jobs.restore(Arc::new(shard(&[0.0; 3])));
        take_role(&shared, &orders(ReplicaRole::Primary { term: 1 }));
        let (socket, mut worker) = Socket::with_peer();
        let connection = ConnectionGuard::new(shared.clone(), &socket);
        let served = thread::spawn(move || tensor::serve(&connection.shared, Channel::Socket(socket)));
        let (condition, incarnation) = (ReadCondition::version(1), Incarnation(1));
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        let session = SessionKey { run, incarnation };
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        Request::Pull { session, condition, codec: Codec::Plain }.encode(0, &mut bytes);
        worker.write_all(&bytes).unwrap();
        assert_eq!(Reply::read(&mut worker, &mut scratch).unwrap().0, Reply::Waiting);
        take_role(&shared, &orders(ReplicaRole::Standby { term: 2 }));
        assert!(shared.jobs.open_jobs().is_empty());
        served.join().unwrap().unwrap_err();
        shared.stopping.store(true, Ordering::SeqCst);
        bytes.clear();
        let _ = worker.read_to_end(&mut bytes);
        assert!(bytes.is_empty(), "it is told {:?}", Reply::read(&mut &bytes[..], &mut scratch));
    }

    /// The change that is awaited may take seconds. An engine that hears nothing meanwhile would let a
    /// process serve that has nothing.
    #[test]
    fn a_process_that_is_being_promoted_says_what_it_has_until_it_serves_and_then_the_last_term() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let following = orders(ReplicaRole::Standby { term: 8 });
        take_role(&shared, &following);
        let job = Arc::new(FollowedJob::new(shard(&[0.0; 3])));
        job.in_step.store(true, Ordering::Release);
        assert!(shared.followed.insert(&job, 8));
        let says = || {
            let hello = ShardHello::alone(ShardIndex(0), 1, String::new(), 1);
            let hello = shared.role.complete_hello(&shared, &hello);
            (hello.role, hello.jobs)
        };
        thread::scope(|scope| {
            let change = lock(&job.ended);
            let promoted = scope.spawn(|| promote(&shared, EngineEpoch(1), 9));
            until("the promotion waits", || lock(&shared.followed.0).term.is_none());
            // The engine answers each of its announcements.
            let answered = scope.spawn(|| follow_orders(&shared, &following));
            until("an answer is followed", || answered.is_finished());
            assert_eq!(says(), (Some(ReplicaRole::Standby { term: 8 }), 1));
            drop(change);
            assert_eq!(promoted.join().unwrap().unwrap(), 1);
        });
        assert_eq!(says(), (Some(ReplicaRole::Primary { term: 9 }), 1));
        for (asked, told) in [(12, 12), (10, 12)] {
            assert_eq!(promote(&shared, EngineEpoch(1), asked).unwrap(), 1);
            assert_eq!(says().0, Some(ReplicaRole::Primary { term: told }));
        }
    }

    #[test]
    fn a_process_that_stops_is_not_promoted_and_has_what_it_follows_to_keep() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        take_role(&shared, &orders(ReplicaRole::Standby { term: 8 }));
        let job = Arc::new(FollowedJob::new(shard(&[0.0; 3])));
        job.in_step.store(true, Ordering::Release);
        assert!(shared.followed.insert(&job, 8));
        shared.stopping.store(true, Ordering::SeqCst);
        assert_eq!(promote(&shared, EngineEpoch(1), 9), Err(ShardFault::NotFollowing { term: 9 }));
        assert_eq!(shared.followed.finish().len(), 1);
    }

    /// The engine says once that a process goes on alone, and maybe before the copy of a job has begun.
    #[test]
    fn a_standby_that_is_lost_after_the_engine_gave_it_up_is_not_reported_again() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let peer = ShardPeer { term: 5, address: "127.0.0.1:1".into() };
        let primary = orders(ReplicaRole::Primary { term: 4 });
        take_role(&shared, &ShardOrders { peer: Some(peer), ..primary.clone() });
        assert!(shared.role.report_lost(5) && shared.role.report_lost(5));
        assert!(!shared.role.report_lost(4));
        take_role(&shared, &primary);
        assert!(!shared.role.report_lost(5));
    }

    #[test]
    fn standbys_that_are_lost_in_a_row_are_waited_for_longer_and_longer() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let lose = |term| {
            let peer = Some(ShardPeer { term, address: "127.0.0.1:1".into() });
            take_role(&shared, &ShardOrders { peer, ..orders(ReplicaRole::Primary { term: 1 }) });
            assert!(shared.role.report_lost(term));
            shared.role.standby_pause()
        };
        assert!(lose(5) <= FIRST_PAUSE);
        assert!(lose(6) > FIRST_PAUSE && lose(7) > 2 * FIRST_PAUSE);
        lock(&shared.role.state).failed_at = Instant::now().checked_sub(FORGIVEN_AFTER);
        assert!(lose(8) <= FIRST_PAUSE);
    }

    fn orders(role: ReplicaRole) -> ShardOrders {
        ShardOrders { epoch: EngineEpoch(1), role, peer: None, lead_expired: false }
    }
}
