//! The end of one task that somebody cancels, while its job goes on: it fails, and what needs it follows as
//! after any failure.

use super::TaskJob;
use crate::{
    core::{Core, Refused, TaskCancellation, panics::Handling, turn::Turn},
    fault_code::FaultCode,
    tasks::{Failure, FailureCause, TaskIndex, TaskState},
};

/// Code of a task that somebody has canceled.
pub(super) const TASK_CANCELED: FaultCode = FaultCode::new("E602");

impl Core {
    /// Cancels one task of a job of general tasks that goes on.
    pub(in crate::core) fn cancel_task(
        &mut self,
        cancellation: TaskCancellation,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refused> {
        let TaskCancellation { job, task, reason, grace_ms } = cancellation;
        let id = job.id.clone();
        let _handling = Handling(&id);
        self.check_not_replaced(&job)?;
        self.check_goes_on(&id)?;
        let unknown = || Refused::UnknownTask { job: id.clone(), task };
        let job = self.task_jobs.get_mut(&id).ok_or_else(unknown)?;
        if !job.is_running() || task.0 >= job.graph.len() {
            return Err(unknown());
        }
        job.cancel_one(task.0, reason, grace_ms, turn.now_us)?;
        self.note(&id, turn);
        Ok(())
    }
}

impl TaskJob {
    fn cancel_one(&mut self, task: u32, reason: String, grace_ms: u64, now_us: u64) -> Result<(), Refused> {
        // It has ended itself: what gives its value can be ended.
        let mut task = task;
        while let Some(child) = self.continued.get(&task) {
            task = *child;
        }
        let slot = *self.graph.slot(task);
        match slot.state {
            TaskState::Failed if self.is_canceled(task) => return Ok(()),
            state if state.is_final() => {
                return Err(Refused::TaskOver { job: self.id.clone(), task: TaskIndex(task), state });
            }
            _ if self.is_canceling() => return Ok(()),
            _ => {}
        }
        let faults = self.note_attempts(task);
        // The first reason stays, and the end only comes earlier.
        if faults.canceling_until_us.is_none() {
            let why = if reason.is_empty() { reason } else { format!(": {reason}") };
            let reason = format!("somebody canceled it{why}");
            faults.last = Some(Failure { cause: FailureCause::Function, code: TASK_CANCELED, reason });
        }
        let until_us = now_us.saturating_add(grace_ms.saturating_mul(1_000));
        let before_us = faults.canceling_until_us;
        let until_us = before_us.map_or(until_us, |before_us| before_us.min(until_us));
        faults.canceling_until_us = Some(until_us);
        if let Some(before_us) = before_us {
            self.canceling.remove(&(before_us, task));
        }
        self.canceling.insert((until_us, task));
        let runs = slot.state == TaskState::Leased && slot.unmet == 0;
        if runs && until_us > now_us {
            if let Some(worker) = self.holder(task).filter(|_| before_us.is_none()) {
                self.outbox.stopped.push((worker, self.current_attempt(task)));
            }
        } else {
            self.end_canceled(task, now_us);
        }
        self.end_if_due(now_us);
        Ok(())
    }

    /// Whether somebody cancels a task that has not ended.
    pub(super) fn is_task_canceling(&self, task: u32) -> bool {
        self.faults.get(&task).is_some_and(|faults| faults.canceling_until_us.is_some())
    }

    fn is_canceled(&self, task: u32) -> bool {
        let last = self.faults.get(&task).and_then(|faults| faults.last.as_ref());
        last.is_some_and(|failure| failure.code == TASK_CANCELED)
    }

    /// A task that somebody cancels gives something before its time is over: that counts.
    pub(super) fn forget_canceling(&mut self, task: u32) {
        let Some(faults) = self.faults.get_mut(&task) else { return };
        if let Some(until_us) = faults.canceling_until_us.take() {
            self.canceling.remove(&(until_us, task));
            self.changes.faults.insert(task);
        }
    }

    /// A task that somebody cancels is over, wherever it is.
    pub(super) fn end_canceled(&mut self, task: u32, now_us: u64) {
        self.forget_canceling(task);
        self.clear_queue_deadline(task);
        let faults = self.note_attempts(task);
        let Some(failure) = faults.last.clone() else { return };
        self.leave_backoff(task);
        self.outbox.trainings_ended.extend(self.trainings.open.remove(&task));
        if self.graph.state(task) == TaskState::Leased {
            self.recall(task);
        }
        self.fail(task, failure, now_us);
    }

    /// Gives up tasks that were told to stop and have not.
    pub(super) fn end_task_graces(&mut self, now_us: u64) {
        while let Some(&(_, task)) = self.canceling.first().filter(|(until_us, _)| *until_us <= now_us) {
            self.end_canceled(task, now_us);
        }
        self.end_if_due(now_us);
    }
}
