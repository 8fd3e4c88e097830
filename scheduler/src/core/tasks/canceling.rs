//! The end of a job that somebody cancels: what runs is told to stop and has some time for it, all else is
//! over at once.

use super::{TaskJob, ending::exceeds_inline_limit, values::ValueWithPreview};
use crate::{
    core::{Cancellation, Core, Happening, Phase, turn::Turn},
    ids::JobRef,
    tasks::{Outcome, TaskEnd, TaskState},
};

impl Core {
    /// Cancels a job of general tasks that is not over.
    pub(in crate::core) fn cancel_tasks(&mut self, cancellation: Cancellation, turn: &mut Turn<'_>) {
        let Cancellation { job: JobRef { id, .. }, reason, grace_ms } = cancellation;
        if let Some(job) = self.task_jobs.get_mut(&id) {
            job.cancel(reason, grace_ms, turn.now_us);
            self.note(&id, turn);
        }
    }
}

impl TaskJob {
    /// Begins to end the job, or makes the end come earlier.
    fn cancel(&mut self, reason: String, grace_ms: u64, now_us: u64) {
        if self.state.cancel_reason.is_empty() {
            self.state.cancel_reason = reason;
        }
        let until_us = now_us.saturating_add(grace_ms.saturating_mul(1_000));
        let before_us = self.state.canceling_until_us;
        let until_us = before_us.map_or(until_us, |before_us| before_us.min(until_us));
        if until_us <= now_us || !self.has_leases() {
            return self.end(Phase::Canceled, now_us);
        }
        if before_us.is_none() {
            self.stop_all();
        }
        self.state.canceling_until_us = Some(until_us);
        self.changes.job_state = true;
        let reason = self.state.cancel_reason.clone();
        self.tell(Happening::Canceling { until_ms: until_us / 1_000, reason }, now_us);
    }

    /// Whether somebody wants it to end, and what runs has not ended yet.
    pub(super) fn is_canceling(&self) -> bool {
        self.state.canceling_until_us.is_some()
    }

    /// Whether the time of what runs is over.
    pub(super) fn is_grace_over(&self, now_us: u64) -> bool {
        self.state.canceling_until_us.is_some_and(|until_us| until_us <= now_us)
    }

    /// Gives up what runs still.
    pub(super) fn end_grace(&mut self, now_us: u64) {
        if self.is_grace_over(now_us) {
            self.end(Phase::Canceled, now_us);
        }
    }

    /// Tells what runs to stop, and cancels what does not.
    fn stop_all(&mut self) {
        let leased = self.leases.iter().flat_map(|(worker, tasks)| tasks.iter().map(|task| (*worker, *task)));
        for (worker, task) in leased.collect::<Vec<_>>() {
            if self.graph.slot(task).unmet > 0 {
                // It waits there for one that will give nothing.
                self.recall_from(worker, task);
                self.cancel_task(task);
            } else {
                self.outbox.stopped.push((worker, self.current_attempt(task)));
            }
        }
        for task in 0..self.graph.len() {
            let state = self.graph.state(task);
            if !state.is_final() && state != TaskState::Leased {
                self.cancel_task(task);
            }
        }
        self.clear_schedules();
    }

    /// What a task says that was told to stop: a value counts, everything else is its end without one.
    pub(super) fn attempt_stopped(&mut self, task: u32, TaskEnd { outcome, preview, .. }: TaskEnd) {
        match outcome {
            Outcome::Value(value) if !exceeds_inline_limit(&value) => {
                self.complete_task(task, ValueWithPreview { value, preview });
            }
            outcome => {
                self.release_unused(outcome.value(), outcome.added());
                self.cancel_task(task);
            }
        }
    }

    /// One task is over, because its job is to end.
    pub(super) fn cancel_task(&mut self, task: u32) {
        self.graph.set_state(task, TaskState::Canceled);
        self.use_up_inputs(task);
    }

    fn has_leases(&self) -> bool {
        self.leases.values().any(|tasks| !tasks.is_empty())
    }
}
