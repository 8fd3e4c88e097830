//! Time in which no engine led, or one that could write nothing, or by which the clock jumped when another
//! engine took over. It counts for no limit: nobody could have begun, or ended, anything.

use super::{job::Job, panics::Handling, records::Phase, state_machine::Core};

/// How times that jobs hold are moved, in µs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shift {
    /// So long nobody led.
    Later(u64),
    /// The clock was set back.
    Earlier(u64),
}

impl Shift {
    pub(super) fn apply(self, at_us: u64) -> u64 {
        match self {
            Self::Later(by_us) => at_us.saturating_add(by_us),
            Self::Earlier(by_us) => at_us.saturating_sub(by_us),
        }
    }

    /// How far a clock without such times is behind the engine's, if it was behind by so much before.
    pub(super) fn added_to(self, behind_us: i64) -> i64 {
        match self {
            Self::Later(by_us) => behind_us.saturating_add_unsigned(by_us),
            Self::Earlier(by_us) => behind_us.saturating_sub_unsigned(by_us),
        }
    }
}

impl Core {
    /// From `last_us` to `now_us` nothing was decided: all jobs were loaded just now, and the engine that led
    /// before did so until then on its clock, or this one stood still. To be called before the next
    /// input.
    pub fn discount_downtime(&mut self, last_us: u64, now_us: u64) {
        let shift = match now_us.checked_sub(last_us) {
            Some(0) => return,
            Some(gap_us) => Shift::Later(gap_us),
            None => Shift::Earlier(last_us - now_us),
        };
        for (id, job) in &mut self.task_jobs {
            let _handling = Handling(id);
            job.await_parts_from(now_us);
            if job.shift_limits(shift) {
                self.changed_tasks.insert(id.clone());
            }
        }
        for (id, job) in self.jobs.live_mut().filter(|(_, job)| !job.phase().is_over()) {
            let _handling = Handling(id);
            job.shift_limits(shift, now_us);
        }
    }

    /// What was decided up to `turn_us` before `now_us` is in Redis only now: what Redis may forget of it
    /// counts from there, and nothing else does.
    pub fn discount_turn(&mut self, turn_us: u64, now_us: u64) {
        for (id, job) in self.jobs.live_mut().filter(|(_, job)| !job.phase().is_over()) {
            let _handling = Handling(id);
            job.changes.job_state |=
                job.state.checkpoints.complete_again(now_us.saturating_sub(turn_us), now_us);
        }
    }
}

impl Job {
    fn shift_limits(&mut self, shift: Shift, now_us: u64) {
        self.state.checkpoints.shift_completions(shift, now_us);
        for lost in self.state.lost_shards.values_mut() {
            lost.until_us = lost.until_us.map(|until_us| shift.apply(until_us));
        }
        match shift {
            Shift::Later(gap_us) => {
                self.state.unled_us = self.state.unled_us.saturating_add(gap_us);
            }
            // What is in the future would last, or be looked at as if it had just been, until the clock has
            // come to where it was.
            Shift::Earlier(_) => {
                let counted = self.counted();
                let state = &mut self.state;
                state.submitted_us = shift.apply(state.submitted_us);
                for at_us in [&mut state.started_us, &mut state.opened_us, &mut state.resumed_us] {
                    *at_us = at_us.map(|at_us| shift.apply(at_us));
                }
                state.recent_rate.begin_anew(now_us, counted);
                state.checkpoints.shift(shift);
                for lost in state.lost_shards.values_mut() {
                    lost.since_us = shift.apply(lost.since_us);
                }
                for exclusion in state.excluded.values_mut() {
                    exclusion.since_us = shift.apply(exclusion.since_us);
                    exclusion.until_us = shift.apply(exclusion.until_us);
                }
                for retry in state.retries.values_mut() {
                    retry.at_us = shift.apply(retry.at_us);
                }
                let trained_us = self.training_us(now_us).unwrap_or_default();
                self.state.evaluations.count_at_most(trained_us);
            }
        }
        self.changes.job_state = true;
    }

    /// What no engine led counts anew from here.
    pub(super) fn forget_downtime(&mut self) {
        self.state.unled_us = 0;
    }

    /// How long ago that was, as far as an engine led since.
    pub(super) fn led_since_us(&self, since_us: u64, now_us: u64) -> u64 {
        now_us.saturating_sub(since_us).saturating_sub(self.state.unled_us)
    }

    /// Whether nobody has begun it.
    pub(super) fn is_queued(&self) -> bool {
        self.state.phase == Phase::Queued
    }
}
