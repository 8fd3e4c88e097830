//! Tasks and trainings that may not wait for a worker forever.
//!
//! For a training that was submitted on its own the time counts from then until its first worker has joined.
//!
//! The time counts from when a task is ready until a worker has it, or until the first worker has joined the
//! job that trains for it. While the graph, or that job, is paused nothing ends, and afterwards the time
//! begins anew.

use std::collections::{BTreeMap, BTreeSet};

use super::{TaskJob, job::RetryState};
use crate::{
    core::{Core, Job, Phase, downtime::Shift, panics::Handling, turn::Turn},
    fault_code::FaultCode,
    ids::JobId,
    tasks::{ClassIndex, Failure, FailureCause, TaskState},
};

/// Code of a task that no worker has begun in time.
pub(super) const WAITED_TOO_LONG: FaultCode = FaultCode::new("E060");

/// Tasks of a job that are seen to in one tick: as many as were added at once may wait from the same moment
/// on, and workers wait for the commit. What is due besides follows with the next ticks.
const MOST_AT_ONCE: usize = 4_096;

/// A limit in words.
fn not_begun_within(limit_ms: u64, reason: &str) -> String {
    format!("nobody has begun it within {} s: {reason}", limit_ms as f64 / 1e3)
}

impl Core {
    /// Fails tasks that have waited for a worker for too long.
    pub(in crate::core) fn expire_queue_deadlines(&mut self, turn: &mut Turn<'_>) {
        let now_us = turn.now_us;
        let is_due = |job: &TaskJob| {
            job.gives_out() && job.queue.first().is_some_and(|(until_us, _)| *until_us <= job.led_us(now_us))
        };
        let due = self.task_jobs.iter().filter(|(_, job)| is_due(job)).map(|(id, _)| id.clone());
        for id in due.collect::<Vec<JobId>>() {
            let _handling = Handling(&id);
            let overdue = self.overdue(&id, turn.now_us);
            if let Some(job) = self.task_jobs.get_mut(&id) {
                overdue.into_iter().for_each(|(task, why)| job.queue_time_over(task, why, turn.now_us));
                // Once: thousands may have been to take one failure, and each end looks through all of them.
                job.end_if_due(turn.now_us);
            }
            self.note(&id, turn);
        }
    }

    /// Fails trainings that were submitted on their own and have waited for their first worker for too long.
    pub(in crate::core) fn end_queued(&mut self, turn: &mut Turn<'_>) {
        let on_their_own =
            |job: &Job| *job.phase() == Phase::Queued && job.state.trains_for.is_none() && !job.state.paused;
        for (id, job) in self.jobs.live_mut().filter(|(_, job)| on_their_own(job)) {
            let _handling = Handling(id);
            let Some(limit_ms) = job.train().queue_limit_ms else { continue };
            if job.led_since_us(job.queued_since_us(), turn.now_us) < limit_ms.saturating_mul(1_000) {
                continue;
            }
            let waits_for = job.state.waiting_for.clone().unwrap_or_else(|| "the workers".to_owned());
            let reason = not_begun_within(limit_ms, &format!("it waits for {waits_for}"));
            let failed = Phase::Failed { code: WAITED_TOO_LONG, reason };
            job.end(failed, turn);
        }
    }

    /// Tasks whose time to wait is over, each with the sentence why nobody has begun it; without one those
    /// that have begun to train.
    fn overdue(&self, id: &JobId, now_us: u64) -> Vec<(u32, Option<String>)> {
        let Some(job) = self.task_jobs.get(id) else { return Vec::new() };
        let mut reasons: BTreeMap<ClassIndex, String> = BTreeMap::new();
        let led_us = job.led_us(now_us);
        let due = job.queue.iter().take_while(|(until_us, _)| *until_us <= led_us).map(|(_, task)| *task);
        let with_reason = due.take(MOST_AT_ONCE).map(|task| {
            if !self.waits_for_a_worker(job, task) {
                return (task, None);
            }
            let class = job.graph.slot(task).class;
            let reason = reasons.entry(class).or_insert_with(|| self.why_not_held(job, task, now_us));
            (task, Some(reason.clone()))
        });
        with_reason.collect()
    }

    /// Somebody lets a training go on. Where no worker has joined it yet, the time begins anew in which one
    /// must for the task for which it trains.
    pub(in crate::core) fn restart_queue_deadline_of(&mut self, training: &JobId, turn: &mut Turn<'_>) {
        let queued = self.jobs.get(training).filter(|job| *job.phase() == Phase::Queued);
        let Some(of) = queued.and_then(|job| job.state.trains_for.clone()) else { return };
        let Some(graph) = self.task_jobs.get_mut(&of.job) else { return };
        if graph.trainings.open.get(&of.task) == Some(training) {
            graph.outbox.queued.push(of.task);
            self.note(&of.job, turn);
        }
    }

    /// Whether a task that could begin waits for a worker to begin it.
    pub(super) fn waits_for_a_worker(&self, job: &TaskJob, task: u32) -> bool {
        match job.graph.state(task) {
            TaskState::Ready => true,
            TaskState::Training => {
                let training = job.trainings.open.get(&task).and_then(|training| self.jobs.get(training));
                // One that is paused waits for whoever resumes it.
                training.is_none_or(|training| *training.phase() == Phase::Queued && !training.state.paused)
            }
            _ => false,
        }
    }
}

impl TaskJob {
    /// The job's clock, by which tasks wait for workers: the engine's without the time in which nobody led.
    /// So a million tasks that wait need not be written anew for that time.
    pub(super) fn led_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub_signed(self.state.unled_us)
    }

    /// Takes note of when the tasks that became ready must have begun.
    pub(super) fn limit_queued(&mut self, now_us: u64) {
        for task in std::mem::take(&mut self.outbox.queued) {
            self.clear_queue_deadline(task);
            let limit_ms = self.class_of(task).class.rules.queue_limit_ms;
            let waits = matches!(self.graph.state(task), TaskState::Ready | TaskState::Training);
            let Some(limit_ms) = limit_ms.filter(|_| waits) else { continue };
            let until_us = self.led_us(now_us).saturating_add(limit_ms.saturating_mul(1_000));
            self.queue.insert((until_us, task));
            let attempts = self.graph.slot(task).attempts;
            let faults =
                self.faults.entry(task).or_insert_with(|| RetryState { attempts, ..RetryState::default() });
            faults.queued_until_us = Some(until_us);
            self.changes.faults.insert(task);
        }
    }

    /// A task does not wait for a worker any more.
    pub(super) fn clear_queue_deadline(&mut self, task: u32) {
        let Some(faults) = self.faults.get_mut(&task) else { return };
        let Some(until_us) = faults.queued_until_us.take() else { return };
        self.queue.remove(&(until_us, task));
        // What is at its first attempt and has no other fault needs no record.
        if *faults == (RetryState { attempts: faults.attempts.min(1), ..RetryState::default() }) {
            self.faults.remove(&task);
        }
        self.changes.faults.insert(task);
    }

    /// The time begins anew for all that wait.
    pub(super) fn restart_queue_deadline(&mut self) {
        self.outbox.queued.extend(self.queue.iter().map(|(_, task)| *task));
    }

    /// Moves when what waits must have begun, and when what was told to stop is given up. `true`: something
    /// has changed.
    pub(in crate::core) fn shift_limits(&mut self, shift: Shift) -> bool {
        if self.state.phase.is_over() {
            return false;
        }
        let until_us = self.state.canceling_until_us.map(|until_us| shift.apply(until_us));
        let mut changed = until_us.is_some();
        self.state.canceling_until_us = until_us;
        self.changes.job_state |= changed;
        let Self { state, graph, queue, postponed, canceling, faults, changes, .. } = self;
        if !queue.is_empty() {
            state.unled_us = shift.added_to(state.unled_us);
            changes.job_state = true;
            changed = true;
        }
        let mut move_all = |times: &mut BTreeSet<(u64, u32)>,
                            field: fn(&mut RetryState) -> &mut Option<u64>| {
            changed |= !times.is_empty();
            let moved = std::mem::take(times).into_iter().map(|(until_us, task)| {
                let until_us = shift.apply(until_us);
                if let Some(faults) = faults.get_mut(&task) {
                    *field(faults) = Some(until_us);
                }
                changes.faults.insert(task);
                (until_us, task)
            });
            *times = moved.collect();
        };
        move_all(canceling, |faults| &mut faults.canceling_until_us);
        if let Shift::Earlier(_) = shift {
            move_all(postponed, |faults| &mut faults.backoff_until_us);
            let waits = |(task, faults): &(&u32, &mut RetryState)| {
                faults.others_first_until_us > 0 && !graph.state(**task).is_final()
            };
            for (task, faults) in faults.iter_mut().filter(waits) {
                faults.others_first_until_us = shift.apply(faults.others_first_until_us);
                changes.faults.insert(*task);
                changed = true;
            }
        }
        changed
    }

    /// The time of a task is over: it fails where somebody says why nobody has begun it.
    fn queue_time_over(&mut self, task: u32, why: Option<String>, now_us: u64) {
        // One before it may have ended the job.
        if !self.is_running() {
            return;
        }
        self.clear_queue_deadline(task);
        let Some(reason) = why.filter(|_| !self.graph.state(task).is_final()) else { return };
        let limit_ms = self.class_of(task).class.rules.queue_limit_ms.unwrap_or_default();
        self.outbox.trainings_ended.extend(self.trainings.open.remove(&task));
        let reason = not_begun_within(limit_ms, &reason);
        let failure = Failure { cause: FailureCause::Function, code: WAITED_TOO_LONG, reason };
        self.fail(task, failure, now_us);
    }
}
