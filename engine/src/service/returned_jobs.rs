//! Jobs that Redis has and the engine that leads does not know: Redis was set back while it ran to a time
//! before they were deleted, as by a backup that was restored, or exchanged for another copy. They are shown,
//! and removed when somebody deletes them, not unasked: that copy may be meant.

use syncline_rpc::{EngineFault, JobFields};
use syncline_scheduler::{
    core::{Cancellation, Input, JobPhase},
    ids::{JobId, JobRef},
};

use super::{
    context::ServiceContext,
    damaged_jobs::Damage,
    decision_loop::{DecisionLoop, LoopEnd},
    job_reading::phase_of,
};

/// What callers are told who ask anything else than to delete such a job.
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
    /// Handles an input about one of these; `None` if it is about no such job.
    pub(super) async fn handle_if_returned(
        &mut self,
        input: &Input,
    ) -> Result<Option<Result<(), EngineFault>>, LoopEnd> {
        let (Input::Delete(id)
        | Input::RequestCheckpoint(id)
        | Input::Pause { job: id, .. }
        | Input::Cancel(Cancellation { job: JobRef { id, .. }, .. })) = input
        else {
            return Ok(None);
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
        if !matches!(input, Input::Delete(_)) {
            return Ok(Some(Err(returned(id))));
        }
        self.erase_job(id).await?;
        self.forget_job(id).await?;
        Ok(Some(Ok(())))
    }
}
