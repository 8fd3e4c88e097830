//! Trainings that somebody has paused: nothing more is granted, what was handed out ends, and then the
//! workers serve others until the job is resumed. The shards keep the parameters meanwhile.

use super::{event::Happening, job::Job, refused::Refused, state_machine::Core, turn::Turn};
use crate::ids::JobId;

impl Core {
    /// Pauses a job of either kind, or lets it go on.
    pub(super) fn pause(&mut self, id: &JobId, paused: bool, turn: &mut Turn<'_>) -> Result<(), Refused> {
        self.check_goes_on(id)?;
        if let Some(job) = self.jobs.get_mut(id).filter(|job| job.state.paused != paused) {
            job.pause(paused, turn.now_us);
            if !paused {
                self.restart_queue_deadline_of(id, turn);
            }
        }
        if let Some(job) = self.task_jobs.get_mut(id).filter(|job| job.is_paused() != paused) {
            job.pause(paused, turn.now_us);
            self.note(id, turn);
        }
        Ok(())
    }
}

impl Job {
    fn pause(&mut self, paused: bool, now_us: u64) {
        self.state.paused = paused;
        self.count_pause(now_us);
        if !paused {
            self.state.resumed_us = Some(now_us);
            if self.is_queued() {
                self.forget_downtime();
            }
            self.grant_queue.everybody = true;
            let counted = self.counted();
            self.state.recent_rate.begin_anew(now_us, counted);
        }
        self.tell(if paused { Happening::Paused } else { Happening::Resumed }, now_us);
        self.changes.job_state = true;
    }

    /// What a pause takes does not count as training, nor does the time without an engine within it once
    /// more.
    fn count_pause(&mut self, now_us: u64) {
        let Some(started_us) = self.state.started_us else { return };
        if self.state.paused {
            self.state.trained_before_pause_us = Some(self.led_since_us(started_us, now_us));
        } else if let Some(trained_us) = self.state.trained_before_pause_us.take() {
            let unled_us = now_us.saturating_sub(started_us).saturating_sub(trained_us);
            if self.keeps_until_done() {
                let paused_us = unled_us.saturating_sub(self.state.unled_us);
                self.state.checkpoints.pass_over(paused_us, started_us, now_us);
            }
            self.state.unled_us = unled_us;
        }
    }

    /// It has trained for so long, as if nothing had been between then and now.
    pub(super) fn set_trained(&mut self, trained_us: u64, now_us: u64) {
        match (&mut self.state.trained_before_pause_us, self.state.started_us) {
            (Some(before_pause_us), _) => *before_pause_us = trained_us,
            (None, Some(started_us)) => {
                self.state.unled_us = now_us.saturating_sub(started_us).saturating_sub(trained_us);
            }
            (None, None) => {}
        }
        self.state.evaluations.count_at_most(trained_us);
    }

    /// For how long it has trained, without pauses and what no engine led; `None` before it began. Once every
    /// sample is counted, or it is over, this stays as it is.
    pub(super) fn training_us(&self, now_us: u64) -> Option<u64> {
        let state = &self.state;
        let started_us = state.started_us?;
        let until_now = || self.led_since_us(started_us, state.ended_us.unwrap_or(now_us));
        Some(state.trained_for_us.or(state.trained_before_pause_us).unwrap_or_else(until_now))
    }

    /// Since when its time in the queue counts.
    pub(super) fn queued_since_us(&self) -> u64 {
        self.state.resumed_us.unwrap_or(self.state.submitted_us)
    }
}
