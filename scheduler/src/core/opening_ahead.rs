//! How far ahead of what is reported supersteps are opened, and how one is planned whose workers nobody has
//! watched.
//!
//! The engine hears of a step of 3 ms when the next one is over. So where steps are short, supersteps are
//! opened and their barriers ordered before those in front of them are over: rounds that follow from nothing
//! measured, and supersteps for which the speeds that were measured before stand for watching.

use super::{job::Job, superstep::SuperstepPhase, turn::Turn};
use crate::{
    ids::{Incarnation, Superstep},
    sync::{PlanningBasis, WorkerProgress, plan},
};

/// Supersteps are opened ahead where steps are shorter: several of them fit into the time for which what is
/// decided stays decided.
const OPEN_AHEAD_BELOW_US: u64 = 40_000;
/// Work of a worker in supersteps that have not begun. Who joins comes in behind them, and who changes its
/// speed has done them before that tells.
const AHEAD_US: u64 = 160_000;
const ITERATIONS_AHEAD: u64 = 32;
/// Iterations ahead, summed over the workers: each has an entry in each round.
const ENTRIES_AHEAD: u64 = 1_024;
/// Speeds of a superstep that was over this long ago no longer stand for watching.
const FRESH_US: u64 = 1_000_000;
/// Predicted ends, over all workers, up to which any search takes less than a millisecond or two.
const SEARCHED_AT_ONCE: u64 = 1_024;

impl Job {
    /// Iterations that a worker may have been granted beyond its last finished one when a further superstep
    /// opens for it. A superstep lasts as long as its slowest worker needs, so all must be quick.
    pub(super) fn opened_ahead(&self, worker: Incarnation) -> u64 {
        let ahead = self.ahead(worker);
        let most = ITERATIONS_AHEAD.min(ENTRIES_AHEAD / self.clocks.len().max(1) as u64);
        let watches = self.state.policy.as_dyn().planning_basis() == PlanningBasis::Watching;
        if watches || most <= ahead || self.train().ahead.is_some() {
            return ahead;
        }
        if !self.steps_are_short() {
            return ahead;
        }
        let interval_us = self.members[&worker].interval_us;
        most.min(AHEAD_US / interval_us).min(self.pipeline(worker)).max(ahead)
    }

    fn steps_are_short(&self) -> bool {
        self.active().all(|worker| (1..OPEN_AHEAD_BELOW_US).contains(&self.members[&worker].interval_us))
    }

    /// Whether supersteps that end where they would without any measurement are opened before those in front
    /// of them are over.
    pub(super) fn opens_rounds_ahead(&self) -> bool {
        let rounds = self.state.policy.as_dyn().planning_basis() == PlanningBasis::Nothing;
        rounds && self.train().ahead.is_none() && self.steps_are_short()
    }

    /// When a superstep that opens now is expected to begin, if the speeds measured so far stand for watching
    /// it.
    pub(super) fn begins_unwatched_us(&self, superstep: Superstep, now_us: u64) -> Option<u64> {
        let policy = self.state.policy.as_dyn();
        if policy.planning_basis() != PlanningBasis::Speeds || self.train().ahead.is_some() {
            return None;
        }
        let before = self.supersteps.get(&Superstep(superstep.0.checked_sub(1)?))?;
        let begins_us = match before.phase {
            SuperstepPhase::Ordered => before.sync_at_us?.max(now_us),
            SuperstepPhase::Closed { closed_us, .. } if now_us.saturating_sub(closed_us) < FRESH_US => now_us,
            _ => return None,
        };
        let is_short = |worker| {
            let member = &self.members[&worker];
            let mean_us = member.speed.mean_us_per_sample().unwrap_or(0.0) * f64::from(member.batch);
            (1.0..OPEN_AHEAD_BELOW_US as f64).contains(&mean_us)
        };
        (self.active().count() > 1 && self.active().all(is_short)).then_some(begins_us)
    }

    /// Plans a superstep that has just opened from the mean speeds of its workers and orders its barrier.
    /// Changes nothing where the search may take longer than the engine's loop can wait.
    pub(super) fn plan_unwatched(&mut self, superstep: Superstep, begins_us: u64, turn: &mut Turn<'_>) {
        let seen: Vec<WorkerProgress> = self.supersteps[&superstep]
            .roster
            .iter()
            .map(|(worker, entry)| {
                let mean_us = self.members[worker].speed.mean_us_per_sample().unwrap_or(0.0);
                WorkerProgress {
                    worker: *worker,
                    finished: entry.base,
                    granted: entry.base,
                    in_superstep: 0,
                    last_end_us: begins_us,
                    interval_us: (mean_us * f64::from(entry.batch)).round() as u64,
                }
            })
            .collect();
        let policy = self.state.policy.as_dyn();
        let rows = policy.rows_ahead(begins_us, &seen);
        if rows.iter().map(|row| u64::from(row.points.count)).sum::<u64>() > SEARCHED_AT_ONCE {
            return;
        }
        let Some(plan) = plan(&rows, policy.search_options()) else { return };
        let why = &mut self.superstep_mut(superstep).why;
        why.reason.push_str("; opened ahead, as steps are short: their mean speeds stand for watching");
        self.apply_first_plan(superstep, rows, Some(plan), turn);
    }
}
