//! The thread that computes.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Instant,
};

use syncline_engine::rpc::{EngineFault, JobTicket};
use syncline_ps::{PsError, client::Canceller};
use syncline_scheduler::{
    core::{Assignment, Outcome, TaskKey, Work},
    ids::{Generation, JobId, Superstep},
};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::{
    error::WorkerError,
    job::{Identity, Iteration, JobRun},
};

/// A finished attempt on its way to the engine.
pub(super) struct Finished {
    pub key: TaskKey,
    pub ended: Instant,
    pub outcome: Outcome,
}

/// With work for less than this in hand, the engine should hear at once what is done, so that more comes in time.
const RESERVE_US: u64 = 16_000;

/// What both sides of a worker see of each other.
#[derive(Default)]
pub(super) struct Shared {
    /// Tasks that were given and not begun.
    queued: AtomicU32,
    /// A report is there that must not wait for others.
    urgent: Notify,
    /// Tasks that must not be started any more.
    revoked: Mutex<HashSet<TaskKey>>,
    blocked_on: Mutex<Option<String>>,
    /// Ends the calls of the job that is open now.
    canceller: Mutex<Option<Canceller>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn revoke(&self, keys: &[TaskKey]) {
        lock(&self.revoked).extend(keys.iter().cloned());
    }

    /// Counts a task that is given to the executor.
    pub(super) fn queue(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until a report is there that must not wait for others.
    pub(super) async fn urgent(&self) {
        self.urgent.notified().await;
    }

    pub(super) fn blocked_on(&self) -> Option<String> {
        lock(&self.blocked_on).clone()
    }

    /// Ends whatever the executor is blocked in.
    pub(super) fn cancel(&self) {
        if let Some(canceller) = &*lock(&self.canceller) {
            canceller.cancel();
        }
    }
}

/// Why the executor ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The control side hung up.
    Stopped,
    /// The shards refuse this incarnation.
    Dropped,
}

/// Executes tasks in order until the control side hangs up or the shards refuse this incarnation. `ticket` asks the
/// engine for what a job needs; it blocks.
pub(super) fn execute(
    me: &Identity,
    tasks: &mpsc::Receiver<Assignment>,
    finished: &tokio::sync::mpsc::UnboundedSender<Finished>,
    shared: &Arc<Shared>,
    ticket: impl Fn(&JobId) -> Result<JobTicket, WorkerError>,
) -> End {
    let mut open: HashMap<(JobId, Generation), JobRun> = HashMap::new();
    let mut next = None;
    while let Some(assignment) = next.take().or_else(|| tasks.recv().ok()) {
        let queued = shared.queued.fetch_sub(1, Ordering::Relaxed) - 1;
        let key = assignment.key.clone();
        if lock(&shared.revoked).remove(&key) {
            open.values_mut().for_each(JobRun::forget_asked);
            continue;
        }
        next = tasks.try_recv().ok();
        let following = next.as_ref().and_then(|next| following(&assignment, next));
        let outcome = match run_one(me, &mut open, &assignment, following, shared, &ticket) {
            Ok(outcome) => outcome,
            Err(WorkerError::Ps(PsError::Sealed { .. })) => return End::Dropped,
            Err(WorkerError::Ps(PsError::Canceled)) => return End::Stopped,
            // The job is over or was restored: the engine knows, and revokes the task.
            Err(
                WorkerError::Ps(PsError::Closed { .. } | PsError::WrongGeneration { .. })
                | WorkerError::Engine(EngineFault::UnknownJob { .. }),
            ) => {
                debug!(task = %key.task, job = %key.job, "job is over");
                open.remove(&(key.job, key.generation));
                continue;
            }
            Err(error) => {
                warn!(task = %key.task, job = %key.job, %error, "task failed");
                Outcome::Failed { code: error.code(), reason: error.to_string() }
            }
        };
        let urgent = match &outcome {
            Outcome::Iterated(it) => it.busy_us().saturating_mul(u64::from(queued)) < RESERVE_US,
            _ => true,
        };
        if finished.send(Finished { key, ended: Instant::now(), outcome }).is_err() {
            break;
        }
        if urgent {
            shared.urgent.notify_one();
        }
    }
    End::Stopped
}

/// The superstep of `next` if it is an iteration of the same job as `this`.
fn following(this: &Assignment, next: &Assignment) -> Option<Superstep> {
    let same = (&this.key.job, this.key.generation) == (&next.key.job, next.key.generation);
    match next.work {
        Work::Iterate { superstep, .. } if same => Some(superstep),
        _ => None,
    }
}

fn run_one(
    me: &Identity,
    open: &mut HashMap<(JobId, Generation), JobRun>,
    assignment: &Assignment,
    following: Option<Superstep>,
    shared: &Shared,
    ticket: &impl Fn(&JobId) -> Result<JobTicket, WorkerError>,
) -> Result<Outcome, WorkerError> {
    let key = &assignment.key;
    let place = (key.job.clone(), key.generation);
    let job = match open.get_mut(&place) {
        Some(job) => job,
        None => {
            // A worker serves one job at a time: what was open before is over.
            open.clear();
            let job = JobRun::open(me, key, ticket(&key.job)?)?;
            *lock(&shared.canceller) = Some(job.canceller());
            open.entry(place).or_insert(job)
        }
    };
    match assignment.work {
        Work::Iterate { superstep, seq, range, learning_rate, .. } => {
            *lock(&shared.blocked_on) = superstep.0.checked_sub(1).map(|n| format!("barrier/{n}"));
            let pulled = job.pull(superstep);
            *lock(&shared.blocked_on) = None;
            let task = key.task.to_string();
            job.iterate(&Iteration { task, seq, range, learning_rate }, pulled?, following)
        }
        Work::Evaluate { version } => job.evaluate(version),
    }
}
