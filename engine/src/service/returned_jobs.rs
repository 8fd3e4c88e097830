//! Jobs that Redis has and the engine that leads does not know: Redis was set back while it ran to a time
//! before they were deleted, as by a backup that was restored, or exchanged for another copy. They are shown,
//! and removed when somebody deletes or replaces them, not unasked: that copy may be meant.

use syncline_rpc::{EngineFault, JobFields};
use syncline_scheduler::{
    core::{Cancellation, IfTaken, Input, JobPhase, TaskCancellation},
    ids::{JobId, JobRef},
};

use super::{
    context::ServiceContext,
    damaged_jobs::Damage,
    decision_loop::{DecisionLoop, LoopEnd, fault},
    job_reading::phase_of,
    message::submitted,
};
use crate::store::keys::JobKeys;

/// What callers are told who ask anything else than to delete or replace such a job.
pub(super) fn returned(job: &JobId) -> EngineFault {
    EngineFault::Unreadable { job: job.clone(), cause: Damage::Returned.cause() }
}

/// Whether these fields are shown of such a job.
pub(super) fn is_shown_as_returned(fields: &JobFields) -> bool {
    fields.get("code").is_some_and(|code| *code == Damage::Returned.code().to_string())
}

impl ServiceContext {
    /// Whether a job of which Redis has these fields is one of these. One that is over, by what Redis says,
    /// is shown as it is: it waits for nothing.
    pub(super) fn is_returned(&self, job: &JobId, fields: &JobFields) -> bool {
        let goes_on = !phase_of(fields).is_some_and(JobPhase::is_over);
        goes_on && self.lead().is_ok_and(|lead| !lead.jobs.knows(job))
    }
}

impl DecisionLoop {
    /// Handles an input about one of these; `None` if it is about no such job. A submission that replaces
    /// takes its name over.
    pub(super) async fn handle_if_returned(
        &mut self,
        input: &Input,
    ) -> Result<Option<Result<(), EngineFault>>, LoopEnd> {
        let (id, if_taken) = match (submitted(input), input) {
            (Some((id, if_taken)), _) => (id, Some(if_taken)),
            (
                None,
                Input::Delete(id)
                | Input::RequestCheckpoint(id)
                | Input::Pause { job: id, .. }
                | Input::CancelTask(TaskCancellation { job: JobRef { id, .. }, .. })
                | Input::Cancel(Cancellation { job: JobRef { id, .. }, .. }),
            ) => (id, None),
            _ => return Ok(None),
        };
        // It may have come in this very turn. What this engine wrote last of one that was damaged, and is gone, stays
        // a while.
        if self.lead.jobs.knows(id) || self.core.phase_of(id).is_some() || self.written.contains_key(id) {
            return Ok(None);
        }
        let store = &self.store;
        let writer = self.retry_write("read the last writer", id, || store.last_writer(id)).await?;
        // What is left of a job that was deleted has none.
        if writer.seq().is_none() {
            return Ok(None);
        }
        if let Input::Delete(_) = input {
            self.erase_job(id).await?;
            self.forget_job(id).await?;
            return Ok(Some(Ok(())));
        }
        if if_taken == Some(IfTaken::Replace) {
            let now_us = self.clock.now_us();
            if let Err(refused) = self.with_core(|core| core.check_submission(input, now_us)).await {
                return Ok(Some(Err(fault(refused))));
            }
            self.erase_job(id).await?;
            return Ok(None);
        }
        let job = id.clone();
        let over = self.phase_in_redis(id).await?.filter(|phase| phase.is_over());
        Ok(Some(Err(match (if_taken, over) {
            (Some(_), None) => EngineFault::DuplicateJob { job, differs: ", and Redis has it again".into() },
            (Some(_), Some(state)) => EngineFault::DuplicateJob { job, differs: format!(", and is {state}") },
            // Also one that was damaged, and canceled, before this engine led.
            (None, Some(state)) => EngineFault::Over { job, state: state.to_string() },
            (None, None) => returned(id),
        })))
    }

    /// Where a job stands by what Redis has of it, for people.
    async fn phase_in_redis(&self, job: &JobId) -> Result<Option<JobPhase>, LoopEnd> {
        let (store, key) = (&self.store, &JobKeys::new(job).job);
        let read = || async {
            match store.hash("read job", key).await {
                // Something else lies there.
                Err(error) if error.is_of_keys() => Ok(JobFields::new()),
                read => read,
            }
        };
        Ok(phase_of(&self.retry_write("read job", job, read).await?))
    }
}
