//! Following one job: its copy, and then every change as the primary tells it.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use syncline_rpc::{ShardFault, threads::lock};
use tracing::{info, warn};

use super::{
    Shared,
    connection::Connection,
    followed_jobs::FollowedJob,
    keep_alive::{KEEP_ALIVE_INTERVAL, LARGE_BYTES, with_keep_alive},
    standby_aside, standby_files,
};
use crate::{
    shard::{JobShard, StandbyOp, Term, read_op},
    transport::{Channel, Duplex},
    wire::{Reply, SessionKey},
};

/// Longest silence of the primary in the middle of a copy or a change: it may have to wait for a barrier that
/// closes.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Follows one job until the primary hangs up, or this process serves it. What was followed so far stays if
/// it can be served.
pub(super) fn serve(
    shared: &Arc<Shared>,
    connection: &mut Connection<'_, Channel>,
    session: &SessionKey,
    term: Term,
) -> io::Result<()> {
    connection.duplex.set_read_timeout(Some(READ_LIMIT))?;
    Follower { shared, term, large_bytes: LARGE_BYTES, keep_alive_interval: KEEP_ALIVE_INTERVAL }
        .serve(connection, session)
}

struct Follower<'a> {
    shared: &'a Arc<Shared>,
    term: Term,
    large_bytes: u64,
    keep_alive_interval: Duration,
}

impl Follower<'_> {
    fn serve<D: Duplex>(&self, connection: &mut Connection<'_, D>, session: &SessionKey) -> io::Result<()> {
        let (shared, not_following) = (self.shared, ShardFault::NotFollowing { term: self.term });
        if shared.role.standby_term() != Some(self.term) {
            return connection.answer(Err(not_following));
        }
        // The primary goes on with the job, and tells nobody so before this is answered.
        if let Err(fault) = standby_aside::give_up(shared, &session.run) {
            return connection.answer(Err(fault));
        }
        connection.answer(Ok(Reply::Replicated { number: 0 }))?;
        let shard = JobShard::receive_copy(connection.duplex).inspect_err(|error| {
            // The primary hears that the connection broke, and tries again later: why, it is not told.
            if error.kind() == io::ErrorKind::OutOfMemory {
                warn!(job = %session.run.job, %error, "no memory to follow a job");
            }
        })?;
        if *shard.run() != session.run {
            let what = "a copy of another job than was announced";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let job = Arc::new(FollowedJob::new(shard));
        if !shared.followed.insert(&job, self.term) {
            return connection.answer(Err(not_following));
        }
        let followed = self.follow(connection, &job);
        // Nobody brings what it lacks.
        if !job.is_in_step() {
            shared.followed.remove(&job);
        }
        followed
    }

    fn follow<D: Duplex>(
        &self,
        connection: &mut Connection<'_, D>,
        job: &Arc<FollowedJob>,
    ) -> io::Result<()> {
        let shared = self.shared;
        connection.answer(Ok(Reply::Replicated { number: 0 }))?;
        let (mut number, mut scratch) = (0, Vec::new());
        loop {
            connection.duplex.wait_readable()?;
            shared.stopping()?;
            let (op, elements) = read_op(connection.duplex, &mut scratch, &mut connection.chunk)?;
            let ended = lock(&job.ended);
            if *ended || shared.role.standby_term() != Some(self.term) {
                return connection.answer(Err(ShardFault::NotFollowing { term: self.term }));
            }
            number += u64::from(op != StandbyOp::Ping);
            let (is_awaited, is_last) = (op.is_awaited(), op.is_last());
            let made = if job.shard.bytes() >= self.large_bytes && op.may_take_long() {
                with_keep_alive(connection, self.keep_alive_interval, || {
                    change(shared, job, number, op, &[])
                })?
            } else {
                change(shared, job, number, op, &connection.chunk[..elements])
            };
            if let Err(fault) = made {
                warn!(job = %job.shard.job(), error = %fault, "cannot follow a job");
                // Whoever holds the table may wait for the end of this change.
                drop(ended);
                shared.followed.remove(job);
                return connection.answer(Err(fault));
            }
            drop(ended);
            if is_awaited {
                connection.answer(Ok(Reply::Replicated { number }))?;
            }
            if is_last {
                shared.followed.remove(job);
                shared.freed.note();
                return Ok(());
            }
        }
    }
}

fn change(
    shared: &Arc<Shared>,
    job: &FollowedJob,
    number: u64,
    op: StandbyOp,
    numbers: &[f32],
) -> Result<(), ShardFault> {
    let shard = &job.shard;
    match op {
        StandbyOp::InStep => {
            job.in_step.store(true, Ordering::Release);
            info!(job = %shard.job(), version = shard.version(), "has everything that the primary has");
        }
        // It was written before the copy was whole: nobody counts on this process for it.
        StandbyOp::WriteCheckpoint { .. } if shard.is_catching_up(number) => {}
        StandbyOp::WriteCheckpoint { .. } | StandbyOp::RetainCheckpoints(_) => {
            standby_files::hand_over(shared, shard, op);
        }
        // Nobody is to serve it from here on.
        StandbyOp::SetAside if job.in_step.swap(false, Ordering::AcqRel) => {
            standby_files::hand_over(shared, shard, op);
        }
        StandbyOp::PinCheckpoint { number: checkpoint, .. } => {
            // The job goes on, and goes back further if it must.
            if let Err(error) = shard.replay(number, op, numbers) {
                warn!(job = %shard.job(), checkpoint, %error, "cannot hold a checkpoint here as well");
            }
        }
        op => shard.replay(number, op, numbers)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream, thread};

    use syncline_rpc::{ReplicaRole, Retention};
    use syncline_scheduler::ids::{EngineEpoch, Generation, Incarnation, RunId};

    use super::{
        super::{
            checkpoints,
            followed_jobs::FollowedJobs,
            pull::tests::{Meanwhile, shard},
            rig,
        },
        *,
    };
    use crate::{free_memory::testing::while_free, transport::Socket, waiting::until};

    const EPOCH: EngineEpoch = EngineEpoch(1);
    const TERM: Term = 7;

    /// A process that follows under [`TERM`].
    fn standby(dir: &tempfile::TempDir) -> Arc<Shared> {
        let shared = Shared::for_test(dir.path());
        let role = ReplicaRole::Standby { term: TERM };
        rig::follow_orders(&shared, role, None);
        shared
    }

    fn session() -> SessionKey {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        SessionKey { run, incarnation: Incarnation(u64::MAX) }
    }

    /// What the primary sends of a job: a copy and these changes.
    fn copy_and(ops: impl IntoIterator<Item = StandbyOp>) -> Vec<u8> {
        let mut sent = Vec::new();
        let send = |piece: &[u8]| {
            sent.extend_from_slice(piece);
            io::Result::Ok(())
        };
        assert!(shard(&[0.0; 3]).copy_for_standby(TERM, send).unwrap());
        ops.into_iter().for_each(|op| op.entry().write(&mut sent).unwrap());
        sent
    }

    fn follower(shared: &Arc<Shared>) -> Follower<'_> {
        Follower { shared, term: TERM, large_bytes: 0, keep_alive_interval: Duration::from_millis(1) }
    }

    /// Follows a job until the primary, which sends this, hangs up; what it answers.
    fn answers_to(shared: &Arc<Shared>, sent: &[u8]) -> Vec<Reply> {
        let mut stream = Meanwhile { sent, happens: None::<fn()>, got: Vec::new() };
        let _ = follower(shared).serve(&mut Connection::new(&mut stream), &session());
        let (mut answers, mut scratch, mut all) = (&stream.got[..], Vec::new(), Vec::new());
        while !answers.is_empty() {
            all.push(Reply::read(&mut answers, &mut scratch).unwrap().0);
        }
        all.retain(|reply| *reply != Reply::Waiting);
        all
    }

    fn checkpoint_file(dir: &tempfile::TempDir) -> std::path::PathBuf {
        dir.path().join("checkpoints/digits-00000000/2.checkpoint")
    }

    #[test]
    fn changes_are_acknowledged_while_the_disk_is_busy_with_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let busy = lock(&shared.checkpoint_files);
        let retention = Retention::Thin { keep: vec![2], through: 2 };
        let sent = copy_and([
            StandbyOp::InStep,
            StandbyOp::PinCheckpoint { epoch: EPOCH, number: 2 },
            StandbyOp::WriteCheckpoint { number: 2 },
            StandbyOp::RetainCheckpoints(retention),
            StandbyOp::Ping,
            StandbyOp::Close,
        ]);
        assert_eq!(answers_to(&shared, &sent).len(), 2 + 6);
        drop(busy);
        until("the checkpoint is written", || checkpoint_file(&dir).exists());
        shared.stopping.store(true, Ordering::SeqCst);
    }

    #[test]
    fn a_checkpoint_that_was_ordered_is_written_although_another_engine_takes_over_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let (number, next) = (2, EngineEpoch(EPOCH.0 + 1));
        let sent = copy_and([
            StandbyOp::InStep,
            StandbyOp::PinCheckpoint { epoch: EPOCH, number },
            StandbyOp::Seal { epoch: next, worker: Incarnation(9) },
            StandbyOp::WriteCheckpoint { number },
        ]);
        answers_to(&shared, &sent);
        until("all files are written or removed", || standby_files::is_idle(&shared));
        assert!(checkpoint_file(&dir).exists());
        let followed = shared.followed.find(&session().run).unwrap();
        assert!(followed.epoch() == next && followed.pinned_checkpoint(number).is_none());
    }

    #[test]
    fn the_folder_of_a_job_that_is_over_does_not_come_back_with_what_was_still_to_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let busy = lock(&shared.checkpoint_files);
        let (epoch, number) = (EPOCH, 2);
        let ops = [
            StandbyOp::InStep,
            StandbyOp::PinCheckpoint { epoch, number },
            StandbyOp::WriteCheckpoint { number },
        ];
        for more in [None, Some(StandbyOp::Close)] {
            answers_to(&shared, &copy_and(ops.clone().into_iter().chain(more)));
            checkpoints::remove_all(&shared, &session().run, &busy).unwrap();
        }
        drop(busy);
        until("all files are written or removed", || standby_files::is_idle(&shared));
        assert!(!checkpoint_file(&dir).parent().unwrap().exists());
    }

    #[test]
    fn who_works_long_on_a_change_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let (socket, mut primary) = Socket::with_peer();
        primary.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let held = shared.clone();
        let serving = thread::spawn(move || {
            let mut channel = Channel::Socket(socket);
            let _ = follower(&held).serve(&mut Connection::new(&mut channel), &session());
        });
        let mut scratch = Vec::new();
        let mut next = |from: &mut UnixStream| Reply::read(from, &mut scratch).unwrap().0;
        primary.write_all(&copy_and([StandbyOp::InStep])).unwrap();
        for number in [0, 0, 1] {
            assert_eq!(next(&mut primary), Reply::Replicated { number });
        }
        let followed = shared.followed.find(&session().run).unwrap();
        followed.read_chunks(0, 1, |_| {
            StandbyOp::PinCheckpoint { epoch: EPOCH, number: 1 }.entry().write(&mut primary).unwrap();
            assert_eq!(next(&mut primary), Reply::Waiting);
        });
        let mut answer = next(&mut primary);
        while answer == Reply::Waiting {
            answer = next(&mut primary);
        }
        assert_eq!(answer, Reply::Replicated { number: 2 });
        drop(primary);
        serving.join().unwrap();
    }

    #[test]
    fn a_checkpoint_that_cannot_be_held_is_no_reason_to_follow_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        // Of an engine before the one that opened the job.
        let fenced = StandbyOp::PinCheckpoint { epoch: EngineEpoch(0), number: 1 };
        let answers = answers_to(&shared, &copy_and([StandbyOp::InStep, fenced, StandbyOp::Ping]));
        assert_eq!(answers.last(), Some(&Reply::Replicated { number: 2 }));
        assert_eq!(shared.followed.in_step(), 1);
    }

    #[test]
    fn a_checkpoint_that_there_is_no_memory_for_is_not_held_and_the_job_is_followed_on() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let job = FollowedJob::new(shard(&[0.0; 3]));
        let pin = || change(&shared, &job, 1, StandbyOp::PinCheckpoint { epoch: EPOCH, number: 2 }, &[]);
        assert_eq!(while_free(job.shard.copied_bytes() - 1, pin), Ok(()));
        assert!(job.shard.pinned_checkpoint(2).is_none());
        assert_eq!(while_free(job.shard.copied_bytes(), pin), Ok(()));
        assert!(job.shard.pinned_checkpoint(2).is_some());
    }

    #[test]
    fn a_job_that_never_came_into_step_is_gone_with_its_connection() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        answers_to(&shared, &copy_and([StandbyOp::Ping]));
        assert!(lock(&shared.followed.0).jobs.is_empty());
        answers_to(&shared, &copy_and([StandbyOp::InStep]));
        assert_eq!(shared.followed.in_step(), 1);
    }

    #[test]
    fn a_copy_of_an_earlier_term_is_not_taken_in() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let ends: [fn(&FollowedJobs); 2] = [|all| drop(all.finish()), |all| all.begin(TERM + 1)];
        for end in ends {
            end(&shared.followed);
            let answers = answers_to(&shared, &copy_and([StandbyOp::InStep]));
            assert_eq!(answers[1..], [Reply::Fault(ShardFault::NotFollowing { term: TERM })]);
        }
        assert!(shared.followed.finish().is_empty());
    }
}
