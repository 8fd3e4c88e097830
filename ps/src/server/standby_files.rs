//! What a standby does on its disk for the jobs that it follows, or did until they were set aside: one thing after the other, in a thread of
//! its own. Whoever tells it of changes waits for no disk.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use syncline_rpc::threads::{self, NoThread, lock};
use syncline_scheduler::ids::RunId;
use tracing::warn;

use super::{Shared, checkpoints, standby_aside};
use crate::shard::{JobShard, StandbyOp};

/// What is still to be done.
#[derive(Default)]
pub(super) struct StandbyFiles(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// Changes that concern files, with the job that each is about.
    waiting: VecDeque<(Arc<JobShard>, StandbyOp)>,
    /// The one whose turn it is.
    current: Option<(Arc<JobShard>, StandbyOp)>,
    /// There is a thread, which ends when nothing waits.
    has_thread: bool,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = &(Arc<JobShard>, StandbyOp)> {
        self.waiting.iter().chain(&self.current)
    }
}

/// Does what a change asks for behind everything that was handed over before.
pub(super) fn hand_over(shared: &Arc<Shared>, job: &Arc<JobShard>, op: StandbyOp) {
    let mut queue = lock(&shared.standby_files.0);
    queue.waiting.push_back((job.clone(), op));
    if queue.has_thread {
        return;
    }
    let held = shared.clone();
    let started = threads::spawn("ps-standby-files", move || work(&held));
    queue.has_thread = started.is_ok();
    if let Err(error) = started {
        warn!(job = %job.job(), %error, hint = NoThread::HINT, "no thread that writes checkpoints of the jobs that are followed");
    }
}

/// Whether something is still to be done for a job, or is being done.
pub(super) fn works_for(shared: &Shared, run: &RunId) -> bool {
    let queue = lock(&shared.standby_files.0);
    queue.all().any(|(shard, _)| shard.run().is_of_same_job(run))
}

/// The job goes on: what it was before is not kept on disk, also where that has begun.
pub(super) fn end_aside(shared: &Shared, run: &RunId) {
    let queue = lock(&shared.standby_files.0);
    let of_job = queue.all().filter(|(shard, _)| shard.run().is_of_same_job(run));
    of_job.filter(|(_, op)| *op == StandbyOp::SetAside).for_each(|(shard, _)| shard.give_up());
}

/// The job is over, and its folder goes: what waits is not written any more, nor what the thread has just
/// begun with. The caller holds the lock that files are written under.
pub(super) fn end(shared: &Shared, run: &RunId) {
    let mut queue = lock(&shared.standby_files.0);
    let is_over = |shard: &JobShard| shard.run().is_of_same_job(run);
    queue.waiting.retain(|(shard, _)| !is_over(shard));
    let current = queue.current.clone().filter(|(shard, _)| is_over(shard));
    drop(queue);
    if let Some((shard, _)) = current {
        shard.end_checkpoints();
    }
}

/// Whether nothing waits or is being done.
#[cfg(test)]
pub(super) fn is_idle(shared: &Shared) -> bool {
    !lock(&shared.standby_files.0).has_thread
}

fn work(shared: &Shared) {
    loop {
        let mut queue = lock(&shared.standby_files.0);
        let next = queue.waiting.pop_front().filter(|_| shared.stopping().is_ok());
        queue.current.clone_from(&next);
        let Some((job, op)) = next else {
            queue.has_thread = false;
            return;
        };
        drop(queue);
        carry_out(shared, &job, op);
    }
}

/// A disk of its own may fail: the job goes on, and goes back further if it must.
fn carry_out(shared: &Shared, shard: &JobShard, op: StandbyOp) {
    let (job, run) = (shard.job(), shard.run());
    match op {
        StandbyOp::WriteCheckpoint { number } => {
            if let Err(error) = checkpoints::write_part(shared, shard, number)
                && !shard.has_ended_checkpoints()
            {
                warn!(%job, number, %error, "cannot write a checkpoint here as well");
            }
        }
        StandbyOp::RetainCheckpoints(retention) => {
            if let Err(error) = checkpoints::retain(shared, run, &retention) {
                warn!(%job, %error, "cannot remove checkpoints here as well");
            }
        }
        StandbyOp::SetAside => {
            if let Err(error) = standby_aside::keep(shared, shard) {
                warn!(%job, %error, "cannot keep a job here as well that was set aside");
            }
            shared.freed.note();
        }
        // Concerns no files.
        _ => {}
    }
}
