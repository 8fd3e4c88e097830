//! What a worker holds, and how much more it takes.

use std::collections::VecDeque;

use super::avoidance::OTHERS_FIRST_US;
use crate::{
    ids::JobId,
    tasks::{Resources, TaskIndex},
};

/// Work that a worker holds per slot, besides what it runs: enough to hide the way to the engine and back.
const AHEAD_US: f32 = 20_000.0;
/// Most tasks that a worker holds.
const MAX_HELD: u32 = 1_024;

/// A worker from which so many calls in a row came back takes one at a time: one that fails all within
/// milliseconds has room for all that is ready.
const MANY_IN_A_ROW: u32 = 3;

/// A task, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskOfJob {
    pub job: JobId,
    pub task: TaskIndex,
}

/// What a worker holds.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerLoad {
    pub(super) held: u32,
    /// Slots that they take up when they run.
    pub(super) held_slots: u32,
    /// Expected time of what it holds.
    pub(super) held_us: f32,
    /// What the tasks that it holds have taken.
    pub(super) taken: Resources,
    /// When something of it ended, or it got something while it had nothing.
    pub(super) progress_us: u64,
    /// When it was asked to give back what it has not begun, while nothing of it has ended since: it takes
    /// no more than it can run.
    pub(super) asked_us: Option<u64>,
    /// What it holds is to be alone: it takes nothing else.
    pub(super) alone: bool,
    /// Leased tasks whose follower could not be leased ahead because there was no room.
    pub(super) chain_ends: VecDeque<TaskOfJob>,
    /// How many calls have come back from it since one did not: they failed by its machine, or could not
    /// begin.
    pub(super) returned_in_a_row: u32,
    /// When the last one of these did, in epoch µs.
    pub(super) returned_us: u64,
}

impl WorkerLoad {
    /// It holds one more, of so many slots and of such a length. One that is longer than all that is held
    /// ahead takes up its slots, and no more of what the others hold ahead than the part of these slots.
    pub(super) fn add_one(&mut self, slots: u32, mean_run_us: Option<f32>) {
        self.held += 1;
        self.held_slots = self.held_slots.saturating_add(slots);
        self.held_us += mean_run_us.unwrap_or(0.0).clamp(1.0, AHEAD_US * slots.max(1) as f32);
    }

    /// One of those that it holds has ended. It had the mean of all: what was expected of just this one may
    /// have been far off, and would otherwise be left forever.
    pub(super) fn end_one(&mut self, slots: u32) {
        let left = self.held.saturating_sub(1);
        self.held_us *= left as f32 / self.held.max(1) as f32;
        self.held = left;
        self.held_slots = self.held_slots.saturating_sub(slots);
        self.alone &= left > 0;
    }

    /// Whether it takes no other task while it holds one. Not for long: what it holds may take hours.
    pub(super) fn takes_one_at_a_time(&self, now_us: u64) -> bool {
        self.returned_in_a_row >= MANY_IN_A_ROW && now_us.saturating_sub(self.returned_us) < OTHERS_FIRST_US
    }

    /// How many more tasks of such a length it takes, each of which takes up so many slots. One that needs
    /// more slots than are free may wait for them here, so that smaller ones do not overtake it forever;
    /// not where something long has them.
    pub(super) fn room(&self, slots: u32, each_slots: u32, mean_run_us: Option<f32>) -> u32 {
        if self.alone {
            return 0;
        }
        let (free, each_slots) = (slots.saturating_sub(self.held_slots), each_slots.max(1));
        if self.asked_us.is_some() {
            return free / each_slots;
        }
        let free = free.div_ceil(each_slots);
        let Some(mean_us) = mean_run_us else { return free };
        let left_us = slots as f32 * AHEAD_US - self.held_us;
        let ahead = (left_us / mean_us.max(1.0)).max(0.0) as u32;
        free.max(ahead).min(MAX_HELD.saturating_sub(self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u32 = 8;

    #[test]
    fn what_is_held_ahead_of_short_tasks_is_20_ms_for_each_slot() {
        let mut load = WorkerLoad::default();
        for held in 0..80 {
            assert_eq!(load.room(SLOTS, 1, Some(2_000.0)), 80 - held);
            load.add_one(1, Some(2_000.0));
        }
        (0..10).for_each(|_| load.end_one(1));
        assert_eq!(load.room(SLOTS, 1, Some(2_000.0)), 10);
    }

    #[test]
    fn one_long_task_keeps_no_short_ones_from_being_held_ahead() {
        let mut load = WorkerLoad::default();
        load.add_one(1, Some(600e6));
        assert_eq!(load.room(SLOTS, 1, Some(2_000.0)), 70, "of seven slots");
        assert_eq!(load.room(SLOTS, 1, Some(600e6)), 7, "as many as can run");
        let mut full = WorkerLoad::default();
        full.add_one(SLOTS, Some(600e6));
        assert_eq!(full.room(SLOTS, 1, Some(2_000.0)), 0, "it has all slots");
    }

    #[test]
    fn what_was_expected_of_slow_first_calls_is_forgotten_though_the_worker_is_never_without_any() {
        let mut load = WorkerLoad::default();
        (0..SLOTS).for_each(|_| load.add_one(1, Some(5e6)));
        for _ in 0..100 {
            load.end_one(1);
            load.add_one(1, Some(2_000.0));
        }
        assert!(load.room(SLOTS, 1, Some(2_000.0)) >= 70, "{load:?}");
    }
}
