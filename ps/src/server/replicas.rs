//! The jobs that a standby follows.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use syncline_rpc::ShardFault;
use syncline_scheduler::ids::{JobId, RunId};
use tracing::{info, warn};

use super::{Shared, backup_files, connection::Connection};
use crate::{
    shard::{JobShard, ReplicaOp, Term, lock, read_op},
    transport::{Channel, Duplex},
    wire::{Reply, SessionKey},
};

/// A standby that works on a change says so this often: it would be lost.
const SIGN_INTERVAL: Duration = Duration::from_secs(1);
/// Changes of a job of fewer bytes are made within a moment.
const LARGE_BYTES: u64 = 64 << 20;
/// Longest silence of the primary in the middle of a copy or a change: it may have to wait for a barrier that closes.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// All replicas of this process.
#[derive(Default)]
pub(super) struct Replicas(Mutex<Followed>);

#[derive(Default)]
struct Followed {
    /// Under which those are followed that are here; `None`: nothing is followed.
    term: Option<Term>,
    jobs: HashMap<JobId, Arc<Replica>>,
}

/// A job as it is on the primary, or was.
struct Replica {
    shard: Arc<JobShard>,
    /// It has everything that the primary has told anybody.
    in_step: AtomicBool,
    /// Whether it is followed no more: it is served, or another has its place. Held while a change is made.
    ended: Mutex<bool>,
}

impl Replicas {
    /// How many could be served now.
    pub(super) fn in_step(&self) -> usize {
        lock(&self.0).jobs.values().filter(|replica| replica.is_in_step()).count()
    }

    /// Forgets all, and takes in those that are sent under `term`.
    pub(super) fn begin(&self, term: Term) {
        self.end_all(Some(term));
    }

    /// Those that can be served; nothing changes them any more, and none comes in.
    pub(super) fn take(&self) -> Vec<Arc<JobShard>> {
        let all = self.end_all(None);
        all.into_iter().filter(|replica| replica.is_in_step()).map(|replica| replica.shard.clone()).collect()
    }

    /// A run of the same job, if one is followed.
    pub(super) fn find(&self, run: &RunId) -> Option<Arc<JobShard>> {
        let known = lock(&self.0).jobs.get(&run.job).map(|replica| replica.shard.clone());
        known.filter(|shard| shard.run().is_of_same_job(run))
    }

    /// Waits for the changes that are being made. The table is not locked meanwhile: who makes one may need it.
    fn end_all(&self, next: Option<Term>) -> Vec<Arc<Replica>> {
        let mut followed = lock(&self.0);
        followed.term = next;
        let all: Vec<_> = followed.jobs.drain().map(|(_, replica)| replica).collect();
        drop(followed);
        all.iter().for_each(|replica| *lock(&replica.ended) = true);
        all
    }

    /// False: another term has begun.
    fn insert(&self, replica: &Arc<Replica>, term: Term) -> bool {
        let mut followed = lock(&self.0);
        if followed.term != Some(term) {
            return false;
        }
        let old = followed.jobs.insert(replica.shard.job().clone(), replica.clone());
        drop(followed);
        if let Some(old) = old {
            *lock(&old.ended) = true;
        }
        true
    }

    fn remove(&self, replica: &Arc<Replica>) {
        let mut followed = lock(&self.0);
        if followed.jobs.get(replica.shard.job()).is_some_and(|known| Arc::ptr_eq(known, replica)) {
            followed.jobs.remove(replica.shard.job());
        }
    }
}

impl Replica {
    fn is_in_step(&self) -> bool {
        self.in_step.load(Ordering::Acquire)
    }
}

/// Follows one job until the primary hangs up, or this process serves it. What was followed so far stays if it can be served.
pub(super) fn serve(
    shared: &Arc<Shared>,
    connection: &mut Connection<'_, Channel>,
    session: &SessionKey,
    term: Term,
) -> io::Result<()> {
    connection.duplex.set_read_timeout(Some(READ_LIMIT))?;
    Follower { shared, term, large_bytes: LARGE_BYTES, sign_interval: SIGN_INTERVAL }
        .serve(connection, session)
}

struct Follower<'a> {
    shared: &'a Arc<Shared>,
    term: Term,
    large_bytes: u64,
    sign_interval: Duration,
}

impl Follower<'_> {
    fn serve<D: Duplex>(&self, connection: &mut Connection<'_, D>, session: &SessionKey) -> io::Result<()> {
        let (shared, not_following) = (self.shared, ShardFault::NotFollowing { term: self.term });
        if shared.role.standby_term() != Some(self.term) {
            return connection.answer(Err(not_following));
        }
        connection.answer(Ok(Reply::Replicated { number: 0 }))?;
        let shard = JobShard::receive_copy(connection.duplex)?;
        if *shard.run() != session.run {
            let what = "a copy of another job than was announced";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let replica = Arc::new(Replica {
            shard: Arc::new(shard),
            in_step: AtomicBool::new(false),
            ended: Mutex::new(false),
        });
        if !shared.replicas.insert(&replica, self.term) {
            return connection.answer(Err(not_following));
        }
        let followed = self.follow(connection, &replica);
        // Nobody brings what it lacks.
        if !replica.is_in_step() {
            shared.replicas.remove(&replica);
        }
        followed
    }

    fn follow<D: Duplex>(
        &self,
        connection: &mut Connection<'_, D>,
        replica: &Arc<Replica>,
    ) -> io::Result<()> {
        let shared = self.shared;
        connection.answer(Ok(Reply::Replicated { number: 0 }))?;
        let (mut number, mut scratch) = (0, Vec::new());
        loop {
            connection.duplex.wait_readable()?;
            shared.stopping()?;
            let (op, elements) = read_op(connection.duplex, &mut scratch, &mut connection.chunk)?;
            let ended = lock(&replica.ended);
            if *ended || shared.role.standby_term() != Some(self.term) {
                return connection.answer(Err(ShardFault::NotFollowing { term: self.term }));
            }
            number += u64::from(op != ReplicaOp::Ping);
            let (is_awaited, is_last) = (op.is_awaited(), op == ReplicaOp::Close);
            let is_large = replica.shard.range().len() * size_of::<f32>() as u64 >= self.large_bytes;
            let made = if is_large && op.may_take_long() {
                self.change_with_signs(connection, replica, number, op)?
            } else {
                change(shared, replica, number, op, &connection.chunk[..elements])
            };
            if let Err(fault) = made {
                warn!(job = %replica.shard.job(), error = %fault, "cannot follow a job");
                // Who holds the table may wait for the end of this change.
                drop(ended);
                shared.replicas.remove(replica);
                return connection.answer(Err(fault));
            }
            drop(ended);
            if is_awaited {
                connection.answer(Ok(Reply::Replicated { number }))?;
            }
            if is_last {
                shared.replicas.remove(replica);
                return Ok(());
            }
        }
    }

    /// Makes a change without numbers that may take long, and says meanwhile that it is being made.
    fn change_with_signs<D: Duplex>(
        &self,
        connection: &mut Connection<'_, D>,
        replica: &Replica,
        number: u64,
        op: ReplicaOp,
    ) -> io::Result<Result<(), ShardFault>> {
        thread::scope(|scope| {
            let (made, makes) = mpsc::channel();
            let run = move || drop(made.send(change(self.shared, replica, number, op, &[])));
            thread::Builder::new().name("ps-follow".into()).spawn_scoped(scope, run)?;
            loop {
                match makes.recv_timeout(self.sign_interval) {
                    Ok(outcome) => return Ok(outcome),
                    Err(RecvTimeoutError::Timeout) => connection.reply(&Reply::Waiting, 0)?,
                    Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
                }
            }
        })
    }
}

fn change(
    shared: &Arc<Shared>,
    replica: &Replica,
    number: u64,
    op: ReplicaOp,
    numbers: &[f32],
) -> Result<(), ShardFault> {
    let shard = &replica.shard;
    match op {
        ReplicaOp::InStep => {
            replica.in_step.store(true, Ordering::Release);
            info!(job = %shard.job(), version = shard.version(), "has everything that the primary has");
        }
        // It was written before the copy was whole: nobody counts on this process for it.
        ReplicaOp::WriteCheckpoint { .. } if shard.is_catching_up(number) => {}
        ReplicaOp::WriteCheckpoint { .. } | ReplicaOp::KeepCheckpoints { .. } => {
            backup_files::hand_over(shared, shard, op);
        }
        ReplicaOp::PinCheckpoint { number: checkpoint, .. } => {
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
    use std::{io::Write as _, os::unix::net::UnixStream};

    use syncline_rpc::{ReplicaRole, ShardOrders};
    use syncline_scheduler::ids::{EngineEpoch, Generation, Incarnation, RunId};

    use super::{
        super::{
            checkpoints,
            pull::tests::{Meanwhile, shard},
            role,
        },
        *,
    };
    use crate::transport::Socket;

    const EPOCH: EngineEpoch = EngineEpoch(1);
    const TERM: Term = 7;

    /// A process that follows under [`TERM`].
    fn standby(dir: &tempfile::TempDir) -> Arc<Shared> {
        let shared = Shared::for_test(dir.path());
        let role = ReplicaRole::Standby { term: TERM };
        role::follow_orders(&shared, &ShardOrders { epoch: EPOCH, role, peer: None, lead_expired: false });
        shared
    }

    fn session() -> SessionKey {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        SessionKey { run, incarnation: Incarnation(u64::MAX) }
    }

    /// What the primary sends of a job: a copy and these changes.
    fn copy_and(ops: impl IntoIterator<Item = ReplicaOp>) -> Vec<u8> {
        let mut sent = Vec::new();
        let send = |piece: &[u8]| {
            sent.extend_from_slice(piece);
            io::Result::Ok(())
        };
        assert!(shard(&[0.0; 3]).copy_for_replica(TERM, send).unwrap());
        ops.into_iter().for_each(|op| op.entry().write(&mut sent).unwrap());
        sent
    }

    fn follower(shared: &Arc<Shared>) -> Follower<'_> {
        Follower { shared, term: TERM, large_bytes: 0, sign_interval: Duration::from_millis(1) }
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
        let (epoch, numbers) = (EPOCH, vec![2]);
        let sent = copy_and([
            ReplicaOp::InStep,
            ReplicaOp::PinCheckpoint { epoch, number: 2 },
            ReplicaOp::WriteCheckpoint { epoch, number: 2 },
            ReplicaOp::KeepCheckpoints { numbers, through: 2 },
            ReplicaOp::Ping,
            ReplicaOp::Close,
        ]);
        assert_eq!(answers_to(&shared, &sent).len(), 2 + 6);
        drop(busy);
        while !checkpoint_file(&dir).exists() {
            thread::yield_now();
        }
        shared.stopping.store(true, Ordering::SeqCst);
    }

    #[test]
    fn the_folder_of_a_job_that_is_over_does_not_come_back_with_what_was_still_to_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let busy = lock(&shared.checkpoint_files);
        let (epoch, number) = (EPOCH, 2);
        let ops = [
            ReplicaOp::InStep,
            ReplicaOp::PinCheckpoint { epoch, number },
            ReplicaOp::WriteCheckpoint { epoch, number },
        ];
        for more in [None, Some(ReplicaOp::Close)] {
            answers_to(&shared, &copy_and(ops.clone().into_iter().chain(more)));
            checkpoints::remove_all(&shared, &session().run, &busy).unwrap();
        }
        drop(busy);
        while !backup_files::is_idle(&shared) {
            thread::yield_now();
        }
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
        primary.write_all(&copy_and([ReplicaOp::InStep])).unwrap();
        for number in [0, 0, 1] {
            assert_eq!(next(&mut primary), Reply::Replicated { number });
        }
        let followed = shared.replicas.find(&session().run).unwrap();
        followed.read_chunks(0, 1, |_| {
            ReplicaOp::PinCheckpoint { epoch: EPOCH, number: 1 }.entry().write(&mut primary).unwrap();
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
        let fenced = ReplicaOp::PinCheckpoint { epoch: EngineEpoch(0), number: 1 };
        let answers = answers_to(&shared, &copy_and([ReplicaOp::InStep, fenced, ReplicaOp::Ping]));
        assert_eq!(answers.last(), Some(&Reply::Replicated { number: 2 }));
        assert_eq!(shared.replicas.in_step(), 1);
    }

    #[test]
    fn a_job_that_never_came_into_step_is_gone_with_its_connection() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        answers_to(&shared, &copy_and([ReplicaOp::Ping]));
        assert!(lock(&shared.replicas.0).jobs.is_empty());
        answers_to(&shared, &copy_and([ReplicaOp::InStep]));
        assert_eq!(shared.replicas.in_step(), 1);
    }

    #[test]
    fn a_copy_of_an_earlier_term_is_not_taken_in() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        for later in [None, Some(TERM + 1)] {
            shared.replicas.end_all(later);
            let answers = answers_to(&shared, &copy_and([ReplicaOp::InStep]));
            assert_eq!(answers[1..], [Reply::Fault(ShardFault::NotFollowing { term: TERM })]);
        }
        assert!(shared.replicas.take().is_empty());
    }
}
