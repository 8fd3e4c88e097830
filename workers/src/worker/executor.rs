//! The thread that computes.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use syncline_ps::{PsError, shard::ReadCondition};
use syncline_rpc::{EngineFault, JobSetup, MAX_TEXT_CHARS, ShardFault, cut};
use syncline_scheduler::{
    core::{Assignment, GradientUse, Outcome, TaskKey, Work},
    ids::{JobId, RunId, Superstep},
    samples::SampleRange,
};
use tracing::{debug, warn};

use super::{
    error::WorkerError,
    iteration::{Iteration, NextPull},
    job::{JobRun, WorkerContext},
    report::{Finished, is_urgent},
    task_tracker::TaskTracker,
};

/// How often an idle worker asks whether the job that it has open goes on.
const IDLE: Duration = Duration::from_secs(10);
/// Why the executor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The control side hung up.
    Stopped,
    /// The shards refuse this incarnation.
    Dropped,
    /// The device computes nothing more, of which the control side hears from the
    /// [`DeviceWatch`](super::device_watch::DeviceWatch).
    DeviceLost,
}

/// The job that is open. A worker serves one at a time.
struct OpenJob {
    id: RunId,
    run: JobRun,
}

impl OpenJob {
    /// Whether this task is one of it.
    fn is_of(&self, key: &TaskKey) -> bool {
        self.id == key.run
    }
}

/// The open job, if this task is one of it.
fn run_of<'a>(open: &'a mut Option<OpenJob>, key: &TaskKey) -> Option<&'a mut JobRun> {
    open.as_mut().filter(|open| open.is_of(key)).map(|open| &mut open.run)
}

/// Executes tasks in order until the control side hangs up, the shards refuse this incarnation, or the device
/// is lost. `setup` asks the engine for what a job needs; it blocks.
pub(super) fn execute(
    context: &WorkerContext,
    tasks: &mpsc::Receiver<Assignment>,
    finished: &tokio::sync::mpsc::UnboundedSender<Finished>,
    tracker: &TaskTracker,
    setup: impl Fn(&JobId) -> Result<JobSetup, WorkerError>,
) -> End {
    let mut open: Option<OpenJob> = None;
    let mut next = None;
    while let Some(assignment) = next.take().or_else(|| next_task(tasks, &mut open, &setup)) {
        let key = assignment.key.clone();
        let (revoked, queued) = tracker.begin(&key);
        if revoked {
            if let Some(job) = &mut open {
                job.run.drop_requested();
            }
            // Revoked iterations end their job: a round that lacks one will never be whole.
            if let Some(run) = run_of(&mut open, &key)
                && matches!(assignment.work, Work::Iterate { .. })
            {
                run.abandon_round();
            }
            continue;
        }
        next = tasks.try_recv().ok();
        // Who prepares itself may read its data as long as it takes: nobody waits for it.
        if !matches!(assignment.work, Work::Prepare { .. }) {
            tracker.timer.begin();
        }
        let ran = run_one(context, &mut open, &assignment, next.as_ref(), tracker, &setup);
        tracker.timer.end();
        let revoked = tracker.end();
        if let Err(WorkerError::Backend(error)) = &ran
            && context.device.look_at(error)
        {
            // Not reported: no task is at fault, and the engine gives it to others once this worker has left.
            return End::DeviceLost;
        }
        if run_of(&mut open, &key).is_some_and(|run| run.local.device_failed()) {
            context.unfit.note(&key.run);
        }
        let evaluates = matches!(assignment.work, Work::Evaluate { .. });
        if ran.as_ref().is_err_and(|error| revoked || !evaluates || ends_job(error)) {
            // A shard may still read a gradient where it lies: the next step writes somewhere else.
            open.take_if(|job| job.is_of(&key));
        }
        let outcome = match outcome(context, &key, ran, tracker) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => continue,
            Err(end) => return end,
        };
        let run = run_of(&mut open, &key);
        let done = Finished { key, ended: Instant::now(), outcome };
        let reports = match run {
            Some(run) => run.settle(done),
            None => vec![done],
        };
        if revoked {
            // Too late for this task, and not for the next one: the job is opened anew, with calls that
            // nobody has ended.
            open = None;
        }
        let urgent = is_urgent(&reports, queued);
        for report in reports {
            if finished.send(report).is_err() {
                return End::Stopped;
            }
        }
        if urgent {
            tracker.notify_urgent();
        }
    }
    End::Stopped
}

/// Waits for a task; `None` if the control side hung up. Meanwhile a job is closed that is over: its samples,
/// its sessions and what they hold of a device are for others then.
fn next_task(
    tasks: &mpsc::Receiver<Assignment>,
    open: &mut Option<OpenJob>,
    setup: &impl Fn(&JobId) -> Result<JobSetup, WorkerError>,
) -> Option<Assignment> {
    while open.is_some() {
        match tasks.recv_timeout(IDLE) {
            Ok(assignment) => return Some(assignment),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                drop(open.take_if(|open| is_over(&open.id, setup(&open.id.job))))
            }
        }
    }
    tasks.recv().ok()
}

/// Whether the engine knows no such job, or none that goes on, or another one has its name.
fn is_over(run: &RunId, setup: Result<JobSetup, WorkerError>) -> bool {
    match setup {
        Ok(setup) => setup.nonce != run.generation.nonce(),
        Err(error) => matches!(error, WorkerError::Engine(EngineFault::UnknownJob { .. })),
    }
}

/// Whether an evaluation that fails like that ends its job here. It gives nothing to the shards, and
/// otherwise what the job has learned locally is still whole.
fn ends_job(error: &WorkerError) -> bool {
    matches!(
        error,
        WorkerError::Ps(PsError::Refused {
            fault: ShardFault::Sealed { .. } | ShardFault::Closed { .. } | ShardFault::WrongGeneration { .. }
        }) | WorkerError::Engine(_)
    )
}

/// What is reported of a task: nothing if its job is over. An error ends the executor.
fn outcome(
    context: &WorkerContext,
    key: &TaskKey,
    ran: Result<Outcome, WorkerError>,
    tracker: &TaskTracker,
) -> Result<Option<Outcome>, End> {
    match ran {
        Ok(outcome) => Ok(Some(outcome)),
        Err(WorkerError::Ps(PsError::Refused { fault: ShardFault::Sealed { .. } })) => Err(End::Dropped),
        Err(WorkerError::Ps(PsError::Canceled)) if tracker.is_stopped() => Err(End::Stopped),
        // The job is over or was restored: the engine knows, and revokes the task, or has done so. Or a shard
        // was started again without it: the engine finds out, and decides.
        Err(
            WorkerError::Ps(
                PsError::Refused {
                    fault:
                        ShardFault::Closed { .. }
                        | ShardFault::WrongGeneration { .. }
                        | ShardFault::UnknownJob { .. },
                }
                | PsError::Canceled,
            )
            | WorkerError::Engine(EngineFault::UnknownJob { .. }),
        ) => {
            debug!(task = %key.task, job = %key.run.job, "job is over");
            Ok(None)
        }
        Err(error) => {
            warn!(worker = %context.incarnation, job = %key.run.job, task = %key.task, %error, "task failed");
            let mut reason = error.to_string();
            cut(&mut reason, MAX_TEXT_CHARS);
            Ok(Some(Outcome::Failed { code: error.code(), reason, blame: error.blame() }))
        }
    }
}

/// What `next` will pull if it is an iteration of the same job as `this` and pulls at all.
fn next_pull(this: &Assignment, next: &Assignment) -> Option<NextPull> {
    let range = next_range(this, next)?;
    match next.work {
        Work::Iterate { seq, gradient: GradientUse::LocalStep { first, .. }, .. } if seq != first => None,
        Work::Iterate { superstep, min_clock, .. } => {
            Some(NextPull { condition: ReadCondition::Version { closed: superstep.0, min_clock }, range })
        }
        _ => None,
    }
}

/// The samples that `next` takes if it is an iteration of the same job as `this`.
fn next_range(this: &Assignment, next: &Assignment) -> Option<SampleRange> {
    match next.work {
        Work::Iterate { range, .. } if this.key.run == next.key.run => Some(range),
        _ => None,
    }
}

/// What a pull may have to wait for, as people are told.
fn blocked_on(superstep: Superstep, min_clock: u64) -> Option<String> {
    match (min_clock, superstep.0.checked_sub(1)) {
        (0, barrier) => barrier.map(|n| format!("barrier/{n}")),
        (clock, _) => Some(format!("clock/{clock}")),
    }
}

fn run_one(
    context: &WorkerContext,
    open: &mut Option<OpenJob>,
    assignment: &Assignment,
    next: Option<&Assignment>,
    tracker: &TaskTracker,
    setup: &impl Fn(&JobId) -> Result<JobSetup, WorkerError>,
) -> Result<Outcome, WorkerError> {
    let key = &assignment.key;
    let job = match open {
        Some(open) if open.is_of(key) => &mut open.run,
        _ => {
            // What was open before is over, and gives back what it holds before the next one takes it.
            *open = None;
            let cancel_token = tracker.begin_job();
            let JobSetup { train, shards, .. } = tracker.timer.waiting(|| setup(&key.run.job))?;
            tracker.shards.set(shards);
            let shards = tracker.shards.clone();
            let run = JobRun::open(context, assignment, train, shards, cancel_token, &tracker.timer)?;
            tracker.timer.progressed();
            &mut open.insert(OpenJob { id: key.run.clone(), run }).run
        }
    };
    match assignment.work {
        Work::Iterate { superstep, seq, range, learning_rate, min_clock, gradient } => {
            let it = Iteration { task: key.task.clone(), seq, range, learning_rate, gradient };
            tracker.set_blocked_on(blocked_on(superstep, min_clock));
            let pulled = job.pull_for(&it, ReadCondition::Version { closed: superstep.0, min_clock });
            tracker.set_blocked_on(None);
            let next_range = next.and_then(|next| next_range(assignment, next));
            let next_pull = next.and_then(|next| next_pull(assignment, next));
            let ran = pulled.and_then(|pulled| match tracker.begin_step() {
                true => job.iterate(&it, pulled, next_range, next_pull),
                false => Err(PsError::Canceled.into()),
            });
            ran.inspect_err(|_| job.abandon_round())
        }
        Work::Prepare { range } => job.warm_up(&key.task, range),
        Work::Evaluate { version, part } => {
            tracker.begin_evaluation();
            job.evaluate(version, part, || tracker.is_revoked())
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        graph::TaskId,
        ids::{EngineEpoch, Generation, Incarnation},
        sim::training,
    };

    use super::*;

    fn key(seq: u64) -> TaskKey {
        let task = TaskId::Iteration { worker: Incarnation(1), seq };
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        TaskKey { run, task, attempt: 1 }
    }

    fn assignment(seq: u64, gradient: GradientUse) -> Assignment {
        let range = SampleRange { epoch: 0, start: 0, len: 1 };
        let work =
            Work::Iterate { superstep: Superstep(2), seq, range, learning_rate: 0.1, min_clock: 7, gradient };
        Assignment { key: key(seq), worker_number: 0, work }
    }

    #[test]
    fn what_is_asked_for_ahead_is_what_the_next_iteration_will_pull() {
        let range = SampleRange { epoch: 0, start: 0, len: 1 };
        let wanted = Some(NextPull { condition: ReadCondition::Version { closed: 2, min_clock: 7 }, range });
        let this = assignment(4, GradientUse::JoinRound);
        #[rustfmt::skip]
        let cases = [
            (GradientUse::ApplyOnArrival { scale: 1.0 },      wanted),
            (GradientUse::JoinRound,                  wanted),
            (GradientUse::LocalStep { first: 5, last: 8 }, wanted),
            (GradientUse::LocalStep { first: 4, last: 8 }, None),
        ];
        for (gradient, want) in cases {
            assert_eq!(next_pull(&this, &assignment(5, gradient)), want, "{gradient:?}");
        }
        assert_eq!(next_pull(&this, &of_other_job()), None);
    }

    fn of_other_job() -> Assignment {
        let mut other = assignment(5, GradientUse::JoinRound);
        other.key.run.generation = Generation(2);
        other
    }

    #[test]
    fn samples_of_the_next_iteration_are_fetched_meanwhile_also_within_a_round_of_local_steps() {
        let this = assignment(4, GradientUse::LocalStep { first: 4, last: 8 });
        let range = Some(SampleRange { epoch: 0, start: 0, len: 1 });
        for gradient in [GradientUse::JoinRound, GradientUse::LocalStep { first: 4, last: 8 }] {
            assert_eq!(next_range(&this, &assignment(5, gradient)), range, "{gradient:?}");
        }
        assert_eq!(next_range(&this, &of_other_job()), None);
    }

    #[test]
    fn what_an_idle_worker_has_open_is_over_where_the_engine_knows_none_of_the_name_or_another_one() {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(7) };
        let setup = |nonce| {
            let train = training("asp".parse().unwrap(), 8, 1);
            Ok(JobSetup { epoch: EngineEpoch(1), nonce, train, shards: Vec::new() })
        };
        let unknown = EngineFault::UnknownJob { job: run.job.clone() };
        assert!(is_over(&run, Err(WorkerError::Engine(unknown))));
        assert!(!is_over(&run, Err(WorkerError::Ps(PsError::Canceled))), "who knows");
        assert_eq!([7, 8].map(|nonce| is_over(&run, setup(nonce))), [false, true]);
    }

    #[test]
    fn an_evaluation_ends_its_job_only_where_the_shards_say_that_it_is_over() {
        let job: JobId = "digits".parse().unwrap();
        let cases = [
            (PsError::Canceled, false),
            (PsError::Length { what: "buffer", got: 1, expected: 2 }, false),
            (ShardFault::Closed { job: job.clone() }.into(), true),
        ];
        for (error, ends) in cases {
            assert_eq!(ends_job(&WorkerError::Ps(error)), ends);
        }
        assert!(ends_job(&WorkerError::Engine(EngineFault::UnknownJob { job })));
    }

    #[test]
    fn people_are_told_the_barrier_or_the_clock_that_is_waited_for() {
        assert_eq!(blocked_on(Superstep(0), 0), None);
        assert_eq!(blocked_on(Superstep(3), 0).unwrap(), "barrier/2");
        assert_eq!(blocked_on(Superstep(0), 5).unwrap(), "clock/5");
        assert_eq!(blocked_on(Superstep(3), 5).unwrap(), "clock/5");
    }
}
