//! The jobs that a standby follows.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use dashmap::DashMap;
use syncline_rpc::ShardFault;
use syncline_scheduler::ids::JobId;
use tracing::{info, warn};

use super::{Shared, backup_files, connection::Connection};
use crate::{
    shard::{JobShard, ReplicaOp, Term, lock, read_op},
    transport::Duplex,
    wire::{Reply, SessionKey},
};

/// All replicas of this process.
#[derive(Default)]
pub(super) struct Replicas(DashMap<JobId, Arc<Replica>>);

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
        self.0.iter().filter(|replica| replica.in_step.load(Ordering::Acquire)).count()
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        self.end_all();
    }

    /// Those that can be served; nothing changes them any more.
    pub(super) fn take(&self) -> Vec<Arc<JobShard>> {
        let ready = |replica: &Arc<Replica>| replica.in_step.load(Ordering::Acquire);
        self.end_all().into_iter().filter(ready).map(|replica| replica.shard.clone()).collect()
    }

    /// Waits for the changes that are being made. The table is not locked meanwhile: who makes one may need it.
    fn end_all(&self) -> Vec<Arc<Replica>> {
        let all: Vec<Arc<Replica>> = self.0.iter().map(|replica| replica.clone()).collect();
        all.iter().for_each(|replica| *lock(&replica.ended) = true);
        self.0.clear();
        all
    }

    fn insert(&self, replica: &Arc<Replica>) {
        let old = self.0.insert(replica.shard.job().clone(), replica.clone());
        if let Some(old) = old {
            *lock(&old.ended) = true;
        }
    }

    fn remove(&self, replica: &Arc<Replica>) {
        self.0.remove_if(replica.shard.job(), |_, known| Arc::ptr_eq(known, replica));
    }
}

/// Follows one job until the primary hangs up, or this process serves it. What was followed so far stays.
pub(super) fn serve<D: Duplex>(
    shared: &Arc<Shared>,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
    term: Term,
) -> io::Result<()> {
    if shared.role.standby_term() != Some(term) {
        return connection.answer(Err(ShardFault::NotFollowing { term }));
    }
    connection.answer(Ok(Reply::Replicated { number: 0 }))?;
    let shard = JobShard::restore(connection.duplex)?;
    if (shard.job(), shard.generation()) != (&session.job, session.generation) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a copy of another job than was announced"));
    }
    let replica = Arc::new(Replica {
        shard: Arc::new(shard),
        in_step: AtomicBool::new(false),
        ended: Mutex::new(false),
    });
    shared.replicas.insert(&replica);
    connection.answer(Ok(Reply::Replicated { number: 0 }))?;
    let (mut number, mut scratch) = (0, Vec::new());
    loop {
        connection.duplex.wait_readable()?;
        shared.stopping()?;
        let (op, elements) = read_op(connection.duplex, &mut scratch, &mut connection.chunk)?;
        let ended = lock(&replica.ended);
        if *ended || shared.role.standby_term() != Some(term) {
            return connection.answer(Err(ShardFault::NotFollowing { term }));
        }
        number += u64::from(op != ReplicaOp::Ping);
        let (is_awaited, is_last) = (op.is_awaited(), op == ReplicaOp::Close);
        if let Err(fault) = follow(shared, &replica, op, &connection.chunk[..elements]) {
            warn!(job = %session.job, error = %fault, "cannot follow a job");
            // Who holds the table may wait for the end of this change.
            drop(ended);
            shared.replicas.remove(&replica);
            return connection.answer(Err(fault));
        }
        drop(ended);
        if is_awaited {
            connection.answer(Ok(Reply::Replicated { number }))?;
        }
        if is_last {
            shared.replicas.remove(&replica);
            return Ok(());
        }
    }
}

fn follow(shared: &Arc<Shared>, replica: &Replica, op: ReplicaOp, numbers: &[f32]) -> Result<(), ShardFault> {
    let shard = &replica.shard;
    match op {
        ReplicaOp::InStep => {
            replica.in_step.store(true, Ordering::Release);
            info!(job = %shard.job(), version = shard.version(), "has everything that the primary has");
        }
        ReplicaOp::WriteCheckpoint { .. } | ReplicaOp::KeepCheckpoints { .. } => {
            backup_files::hand_over(shared, shard, op);
        }
        op => shard.replay(op, numbers)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use syncline_rpc::{ReplicaRole, ShardOrders};
    use syncline_scheduler::ids::{EngineEpoch, Generation, Incarnation};

    use super::{
        super::{
            pull::tests::{Meanwhile, shard},
            role,
        },
        *,
    };

    const EPOCH: EngineEpoch = EngineEpoch(1);
    const TERM: Term = 7;

    /// A process that follows under [`TERM`].
    fn standby(dir: &tempfile::TempDir) -> Arc<Shared> {
        let shared = Shared::for_test(dir.path());
        let role = ReplicaRole::Standby { term: TERM };
        role::follow_orders(&shared, &ShardOrders { epoch: EPOCH, role, peer: None, lead_expired: false });
        shared
    }

    /// Follows a job of which the primary sends a copy and these changes; how many answers it gets.
    fn answers_to(shared: &Arc<Shared>, ops: Vec<ReplicaOp>) -> usize {
        let mut sent = shard(&[0.0; 3]).begin_replica(TERM).unwrap();
        ops.into_iter().for_each(|op| op.entry().write(&mut sent).unwrap());
        let session = SessionKey {
            job: "digits".parse().unwrap(),
            generation: Generation(1),
            incarnation: Incarnation(u64::MAX),
        };
        let mut stream = Meanwhile { sent: &sent, happens: None::<fn()>, got: Vec::new() };
        serve(shared, &mut Connection::new(&mut stream), &session, TERM).unwrap();
        let (mut answers, mut scratch, mut count) = (&stream.got[..], Vec::new(), 0);
        while !answers.is_empty() {
            assert!(matches!(
                Reply::read(&mut answers, &mut scratch).unwrap(),
                (Reply::Replicated { .. }, 0)
            ));
            count += 1;
        }
        count
    }

    #[test]
    fn changes_are_acknowledged_while_the_disk_is_busy_with_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let shared = standby(&dir);
        let busy = lock(&shared.checkpoint_files);
        let (epoch, numbers) = (EPOCH, vec![2]);
        let ops = vec![
            ReplicaOp::InStep,
            ReplicaOp::PinCheckpoint { epoch, number: 2 },
            ReplicaOp::WriteCheckpoint { epoch, number: 2 },
            ReplicaOp::KeepCheckpoints { numbers, through: 2 },
            ReplicaOp::Ping,
            ReplicaOp::Close,
        ];
        assert_eq!(answers_to(&shared, ops), 2 + 6);
        drop(busy);
        let file = dir.path().join("checkpoints/digits-00000000/2.checkpoint");
        while !file.exists() {
            thread::yield_now();
        }
        shared.stopping.store(true, Ordering::SeqCst);
    }
}
