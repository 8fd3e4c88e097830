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

use super::{Shared, checkpoints, connection::Connection};
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
        self.0.iter().for_each(|replica| *lock(&replica.ended) = true);
        self.0.clear();
    }

    /// Those that can be served; nothing changes them any more.
    pub(super) fn take(&self) -> Vec<Arc<JobShard>> {
        self.0.iter().for_each(|replica| *lock(&replica.ended) = true);
        let ready = |replica: &Arc<Replica>| replica.in_step.load(Ordering::Acquire);
        let taken =
            self.0.iter().filter(|replica| ready(replica)).map(|replica| replica.shard.clone()).collect();
        self.0.clear();
        taken
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
    shared: &Shared,
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

fn follow(shared: &Shared, replica: &Replica, op: ReplicaOp, numbers: &[f32]) -> Result<(), ShardFault> {
    let shard = &replica.shard;
    match op {
        ReplicaOp::InStep => {
            replica.in_step.store(true, Ordering::Release);
            info!(job = %shard.job(), version = shard.version(), "has everything that the primary has");
        }
        // A disk of its own may fail: the job goes on, and goes back further if it must.
        ReplicaOp::WriteCheckpoint { epoch, number } => {
            if let Err(error) = checkpoints::write_part(shared, shard, epoch, number) {
                warn!(job = %shard.job(), number, %error, "cannot write a checkpoint here as well");
            }
        }
        ReplicaOp::KeepCheckpoints { numbers, through } => {
            let (job, generation) = (shard.job(), shard.generation());
            if let Err(error) = checkpoints::keep(shared, job, generation, &numbers, through) {
                warn!(%job, %error, "cannot remove checkpoints here as well");
            }
        }
        op => shard.replay(op, numbers)?,
    }
    Ok(())
}
