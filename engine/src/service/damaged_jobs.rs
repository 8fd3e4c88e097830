//! What becomes of a job whose records cannot be used: it is canceled, deleted, or replaced.

use std::time::Instant;

use syncline_rpc::{Cause, EngineFault};
use syncline_scheduler::{
    core::{Cancellation, Commit, Effect, IfTaken, Input, TaskCancellation, Unreadable},
    fault_code::FaultCode,
    ids::{JobId, JobRef},
};

use super::{
    decision_loop::{DecisionLoop, LoopEnd, fault},
    job_list::{due, until_gone},
    last_commit::LastCommit,
    message::submitted,
};
use crate::store::{CommitMode, Expiry, Fence};

/// Why a job is set aside.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Damage {
    #[error("{0}")]
    Records(Cause),
    #[error(
        "[E147] the engine ended {times} times in a row at a bug that it meets with this job, the last time with: {panic}"
    )]
    Crashes { times: u64, panic: String },
    #[error(
        "[E586] it lies on {its} parameter shards, and this engine has {here}: it goes on with an engine and shards that are started \
         with its number"
    )]
    OtherShards { its: u32, here: u32 },
    #[error(
        "[E670] this engine does not know it, as Redis was set back or exchanged while it ran: `syncline delete` removes it, otherwise the \
         next engine takes it in"
    )]
    Returned,
}

impl Damage {
    /// Stable code, see docs/errors.md.
    pub(super) fn code(&self) -> FaultCode {
        match self {
            Self::Records(_) => FaultCode::RECORDS_UNUSABLE,
            Self::Crashes { .. } => FaultCode::CRASHES,
            Self::OtherShards { .. } => FaultCode::OTHER_SHARDS,
            Self::Returned => FaultCode::RETURNED,
        }
    }

    /// What those are told who ask for the job.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Records(cause) => cause.clone(),
            other => Cause::new(other.code(), other),
        }
    }
}

impl From<Unreadable> for Damage {
    fn from(unreadable: Unreadable) -> Self {
        Self::Records(Cause::new(FaultCode::RECORDS_UNUSABLE, &unreadable))
    }
}

impl DecisionLoop {
    /// Handles an input about a job that is marked as damaged; `None` if it is not about one. A submission
    /// with `replace` takes its name over.
    pub(super) async fn handle_if_damaged(
        &mut self,
        input: &Input,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Result<(), EngineFault>>, LoopEnd> {
        // Which one it was nobody can say: it goes where somebody names it, and not where one of its
        // submissions is meant.
        if let Input::Pause { job, .. }
        | Input::RequestCheckpoint(job)
        | Input::CancelTask(TaskCancellation { job: JobRef { id: job, .. }, .. })
        | Input::ExtendGraph { job, .. }
        | Input::StartGraph { job, .. }
        | Input::Cancel(Cancellation { job: JobRef { id: job, nonce: Some(_) }, .. }) = input
            && let Some(damage) = self.lead.jobs.damaged(job)
        {
            return Ok(Some(Err(EngineFault::Unreadable { job: job.clone(), cause: damage.cause() })));
        }
        let submitted = submitted(input);
        let id = match (submitted, input) {
            (Some((id, _)), _)
            | (None, Input::Cancel(Cancellation { job: JobRef { id, .. }, .. }) | Input::Delete(id)) => id,
            _ => return Ok(None),
        };
        let Some(damage) = self.lead.jobs.damaged(id) else { return Ok(None) };
        if let Some((_, IfTaken::Refuse)) = submitted {
            return Ok(Some(Err(EngineFault::DuplicateJob {
                job: id.clone(),
                differs: ", and is damaged".into(),
            })));
        }
        let now_us = self.clock.now_us();
        if let Err(refused) = self.with_core(|core| core.check_submission(input, now_us)).await {
            return Ok(Some(Err(fault(refused))));
        }
        self.erase_job(id).await?;
        if let Input::Cancel(_) = input {
            let summary =
                vec![("state", "canceled".to_owned()), ("reason", format!("it was damaged: {damage}"))];
            let last = &Commit { summary, over: true, expires: true, ..Commit::default() };
            let (store, seq) = (&self.store, self.highest_seq + 1);
            let fence = Fence { epoch: self.epoch, seq, mode: CommitMode::New };
            self.retry_write("commit", id, || store.commit(id, fence, last)).await?;
            // The next job of this name goes on counting from there.
            self.written.insert(id.clone(), LastCommit::up_to(seq));
            self.highest_seq = seq;
        }
        self.lead.jobs.clear_damaged(id);
        self.core.give_up_aside(id);
        self.have_shards_discard();
        if submitted.is_some() {
            return Ok(None);
        }
        effects.extend(self.core.training_given_up(id, self.clock.now_us()));
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("unlist job", id, || store.unlist_job(id, epoch)).await?;
        self.lead.jobs.unlist(id);
        Ok(Some(Ok(())))
    }

    /// Removes what Redis has of trainings that went with their graph while they were set aside. Another one
    /// may begin under the name, which must not be taken for the damaged one.
    pub(super) async fn erase_with_graphs(&mut self) -> Result<(), LoopEnd> {
        let erasable = self.core.take_erasable();
        for id in &erasable {
            self.erase_job(id).await?;
            self.lead.jobs.clear_damaged(id);
            self.forget_job(id).await?;
        }
        if !erasable.is_empty() {
            self.have_shards_discard();
        }
        Ok(())
    }

    /// Forgets damaged jobs that were over, and whose keys have expired.
    pub(super) async fn forget_expired_damaged(&mut self) -> Result<(), LoopEnd> {
        let now = Instant::now();
        let due = due(&self.damaged_until, now);
        if due.is_empty() {
            return Ok(());
        }
        let Ok(expiries) = self.store.expiries(&due).await else { return Ok(()) };
        for (id, expiry) in due.iter().zip(expiries) {
            if let Expiry::InMs(left_ms) = expiry {
                self.damaged_until.insert(id.clone(), now + until_gone(left_ms));
                continue;
            }
            self.damaged_until.remove(id);
            // Somebody may have taken its name since, or have Redis keep it.
            if expiry == Expiry::Gone && self.lead.jobs.damaged(id).is_some() {
                self.lead.jobs.clear_damaged(id);
                self.core.give_up_aside(id);
                self.forget_job(id).await?;
                self.have_shards_discard();
            }
        }
        Ok(())
    }

    /// Shards say what they hold, and are told to discard what somebody has given up.
    fn have_shards_discard(&self) {
        self.lead.shards.indices().for_each(|shard| self.lead.control.query_held_jobs(shard));
    }

    /// Removes what Redis has of a job, whatever that is. Whatever comes under its name counts on from there.
    pub(super) async fn erase_job(&mut self, id: &JobId) -> Result<(), LoopEnd> {
        let (store, epoch) = (&self.store, self.epoch);
        let found = self.retry_write("read the last writer", id, || store.last_writer(id)).await?;
        let seq = self.highest_seq.max(found.seq().unwrap_or(0)) + 1;
        self.retry_write("erase job", id, || store.erase(id, &found, epoch, seq)).await?;
        self.highest_seq = seq;
        Ok(())
    }
}
