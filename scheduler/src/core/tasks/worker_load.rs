//! What a worker holds, and how much more it takes.

use std::collections::VecDeque;

use crate::{ids::JobId, tasks::Resources};

/// Work that a worker holds per slot, besides what it runs: enough to hide the way to the engine and back.
const AHEAD_US: f32 = 20_000.0;
/// Most tasks that a worker holds.
const MAX_HELD: u32 = 1_024;

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
    /// When it was asked to give back what it has not begun, while nothing of it has ended since: it takes no more than it can
    /// run.
    pub(super) asked_us: Option<u64>,
    /// What it holds is to be alone: it takes nothing else.
    pub(super) alone: bool,
    /// Leased tasks whose follower could not be leased ahead because there was no room.
    pub(super) chain_ends: VecDeque<(JobId, u32)>,
}

impl WorkerLoad {
    /// How many more tasks of such a length it takes, each of which takes up so many slots. One that needs more slots than are
    /// free may wait for them here, so that smaller ones do not overtake it for ever; not where something long has them.
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
