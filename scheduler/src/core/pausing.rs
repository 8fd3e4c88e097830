//! Trainings that somebody has paused: nothing more is granted, what was handed out ends, and then the workers serve others
//! until the job is resumed. The shards keep the parameters meanwhile.

use super::{effects::Effect, inputs::Refused, job::Job, records::Phase, state_machine::Core};
use crate::ids::{Incarnation, JobId};

impl Core {
    /// Pauses a training, or lets it go on.
    pub(super) fn pause_training(&mut self, id: &JobId, paused: bool, now_us: u64) -> Result<(), Refused> {
        let job = self.jobs.get_mut(id).ok_or_else(|| Refused::Unknown { job: id.clone() })?;
        if job.state.phase.is_over() {
            return Err(Refused::Over { job: id.clone(), state: job.state.phase.word() });
        }
        if job.state.paused != paused {
            job.pause(paused, now_us);
        }
        Ok(())
    }

    /// Lets the workers of paused trainings go that have done what they were given. They register again, so that the seal of
    /// the shards holds for what they did before.
    pub(super) fn release_paused(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let released: Vec<Incarnation> = self.jobs.values().flat_map(Job::released).collect();
        for worker in released {
            let reason = "its job is paused".to_owned();
            self.worker_gone(worker, &reason, now_us, effects);
            effects.push(Effect::DismissWorker { worker, reason });
        }
    }
}

impl Job {
    fn pause(&mut self, paused: bool, now_us: u64) {
        self.state.paused = paused;
        if !paused {
            self.state.resumed_us = Some(now_us);
            self.grant_queue.everybody = true;
        }
        self.event(if paused { "paused" } else { "resumed" }, now_us, vec![]);
        self.changes.job_state = true;
    }

    /// Workers that a pause lets go.
    fn released(&self) -> Vec<Incarnation> {
        // The shards copy what is at rest before anybody is sealed.
        let copied = !self.state.checkpoints.rests();
        let rests = copied && self.state.paused && self.state.phase == Phase::Running && self.is_at_rest();
        let free = |worker: &Incarnation| rests && self.leased_to(*worker).is_empty();
        self.active().filter(free).collect()
    }

    /// Since when its time in the queue counts.
    pub(super) fn queued_since_us(&self) -> u64 {
        self.state.resumed_us.unwrap_or(self.state.submitted_us)
    }
}
