//! How a job ends, and what is kept of it.

use super::{
    effects::Effect, inputs::TaskFault, job::Job, records::Phase, shard_protocol::SnapshotFile,
    state_machine::SHARD_LOST,
};
use crate::graph::{TaskEvent, TaskId};

impl Job {
    /// Ends the job: everything open is canceled, every worker is told, the shards forget it. Parameters of which there is
    /// no snapshot are written first, unless a part of them is lost.
    pub(super) fn end(&mut self, phase: Phase, now_us: u64, effects: &mut Vec<Effect>) {
        for worker in self.members.keys().copied().collect::<Vec<_>>() {
            for id in self.leased_to(worker) {
                let attempt = self.tasks.get(&id).map_or(0, |t| t.attempts);
                effects.push(Effect::Revoke { worker, key: self.key(id, attempt) });
            }
        }
        let open: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| !t.state.is_final()).map(|(id, _)| id.clone()).collect();
        for id in open {
            self.apply(&id, &TaskEvent::Canceled, now_us);
        }
        let mut fields = vec![("state", phase.word().to_owned())];
        if let Phase::Failed { code, reason } = &phase {
            fields.extend([("code", code.clone()), ("reason", reason.clone())]);
        }
        self.event("job_ended", now_us, fields);
        let whole = !matches!(&phase, Phase::Failed { code, .. } if code == SHARD_LOST);
        let keep = self.state.phase == Phase::Running && self.state.snapshot.is_none() && whole;
        self.state.phase = phase;
        self.state.ended_us = Some(now_us);
        self.state.keeping = keep;
        self.wait_for(None);
        self.changes.job_state = true;
        let (job, generation) = (self.id().clone(), self.state.generation);
        effects.push(Effect::CloseShards { job, generation, keep });
    }

    /// The last parameters of a job that is over are written, or cannot be.
    pub(super) fn weights_kept(&mut self, outcome: Result<SnapshotFile, TaskFault>, now_us: u64) {
        if !std::mem::take(&mut self.state.keeping) {
            return;
        }
        self.changes.job_state = true;
        match outcome {
            Ok(file) => {
                self.event("weights_kept", now_us, vec![("path", file.path.clone())]);
                self.state.snapshot = Some(file);
            }
            Err(fault) => {
                self.event("weights_lost", now_us, vec![("code", fault.code), ("reason", fault.reason)]);
            }
        }
    }
}
