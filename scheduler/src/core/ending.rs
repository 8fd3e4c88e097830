//! How a job ends, and what is kept of it.

use super::{
    Core,
    effects::{Effect, LastWeights},
    event::Happening,
    inputs::{Cancellation, TaskFault},
    job::Job,
    job_phase::JobPhase,
    panics::Handling,
    records::Phase,
    refused::Refused,
    shard_protocol::SnapshotFile,
    tasks::TaskJob,
    turn::Turn,
};
use crate::{
    fault_code::FaultCode,
    graph::{TaskEvent, TaskId},
    ids::{JobId, JobRef},
};

impl Core {
    /// Cancels a job of either kind.
    pub(super) fn cancel(&mut self, cancellation: Cancellation, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let id = &cancellation.job.id.clone();
        let _handling = Handling(id);
        self.check_not_replaced(&cancellation.job)?;
        self.check_goes_on(id)?;
        match self.jobs.get_mut(id) {
            Some(job) => job.cancel(cancellation.reason, turn),
            None => self.cancel_tasks(cancellation, turn),
        }
        Ok(())
    }

    /// Where a job of either kind stands; `None` if there is no such job.
    pub fn phase_of(&self, id: &JobId) -> Option<JobPhase> {
        self.jobs.get(id).map(Job::shown).or_else(|| self.task_jobs.get(id).map(TaskJob::shown))
    }

    /// Refuses what is meant for another job than the one that has its name now.
    ///
    /// # Errors
    /// E650.
    pub fn check_not_replaced(&self, JobRef { id, nonce }: &JobRef) -> Result<(), Refused> {
        let Some(wanted) = nonce else { return Ok(()) };
        let training = self.jobs.get(id).map(|job| job.generation().nonce());
        match training.or_else(|| self.task_jobs.get(id).map(TaskJob::nonce)) {
            Some(there) if there != *wanted => Err(Refused::Replaced { job: id.clone() }),
            _ => Ok(()),
        }
    }

    /// Refuses what makes sense only as long as a job is not over.
    pub(super) fn check_goes_on(&self, id: &JobId) -> Result<(), Refused> {
        match self.phase_of(id) {
            None => Err(Refused::Unknown { job: id.clone() }),
            Some(state) if state.is_over() => Err(Refused::Over { job: id.clone(), state }),
            Some(_) => Ok(()),
        }
    }

    /// Forgets a job that is over.
    pub(super) fn delete(&mut self, id: &JobId, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let state = self.phase_of(id).ok_or(Refused::Unknown { job: id.clone() })?;
        if !state.is_over() {
            return Err(Refused::NotOver { job: id.clone(), state });
        }
        self.training_deleted(id, turn);
        self.make_room_for(id, turn.effects);
        self.deleted.push(id.clone());
        Ok(())
    }
}

impl Job {
    /// Ends the job: everything open is canceled, every worker is told, the shards forget it. Parameters of
    /// which there is no snapshot are written first, unless a part of them is lost.
    pub(super) fn end(&mut self, phase: Phase, turn: &mut Turn<'_>) {
        self.state.loss = self.loss();
        self.dismiss_preparing(turn.effects);
        self.revoke_all(turn.effects);
        self.record_all_barriers();
        let open: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| !t.state.is_final()).map(|(id, _)| id.clone()).collect();
        for id in open {
            self.apply(&id, &TaskEvent::Canceled, turn.now_us);
        }
        let cancel_reason = self.state.cancel_reason.clone();
        self.tell(Happening::JobEnded { phase: phase.clone(), cancel_reason }, turn.now_us);
        let whole = !matches!(&phase, Phase::Failed { code: FaultCode::PARAMETERS_LOST, .. });
        let keeping = self.state.phase == Phase::Running && self.state.snapshot.is_none() && whole;
        self.state.phase = phase;
        self.state.ended_us = Some(turn.now_us);
        self.state.keeping = keeping;
        self.state.lost_shards.clear();
        self.state.checkpoints.end();
        self.thin_out_at_end(turn.effects);
        self.state.evaluations.end();
        self.wait_for(None);
        self.changes.job_state = true;
        turn.effects.push(Effect::CloseShards { run: self.run(), weights: self.last_weights() });
    }

    /// What is to become of the last parameters, now that it is over.
    pub(super) fn last_weights(&self) -> LastWeights {
        match self.state.keeping {
            true => LastWeights::Keep,
            false if self.ended_with_store() => LastWeights::SetAside,
            false => LastWeights::Drop,
        }
    }

    /// Ends the job because somebody, or its graph, wants it to end.
    pub(super) fn cancel(&mut self, reason: String, turn: &mut Turn<'_>) {
        self.state.cancel_reason = reason;
        self.end(Phase::Canceled, turn);
    }

    /// The last parameters of a job that is over could not be written so far: whoever looks at the job is
    /// told why.
    pub(super) fn weights_delayed(&mut self, reason: String) {
        if self.state.keeping && self.state.weights_problem.as_ref() != Some(&reason) {
            self.state.weights_problem = Some(reason);
            self.changes.job_state = true;
        }
    }

    /// The last parameters of a job that is over are written, or cannot be: then its checkpoints stay. The
    /// shards may forget it only now: an engine that does not know of the file asks them once more.
    pub(super) fn weights_kept(&mut self, outcome: Result<SnapshotFile, TaskFault>, turn: &mut Turn<'_>) {
        if !std::mem::take(&mut self.state.keeping) {
            return;
        }
        self.changes.job_state = true;
        self.state.weights_problem = outcome.as_ref().err().map(TaskFault::in_words);
        turn.effects.push(Effect::CloseShards { run: self.run(), weights: self.last_weights() });
        match outcome {
            Ok(file) => {
                self.tell(Happening::WeightsKept { path: file.path.clone() }, turn.now_us);
                self.state.snapshot = Some(file);
                self.thin_out_at_end(turn.effects);
            }
            Err(fault) => self.tell(Happening::WeightsLost(fault), turn.now_us),
        }
    }
}
