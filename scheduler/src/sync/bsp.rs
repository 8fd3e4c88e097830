//! Bulk synchronous parallel (Valiant 1990): a barrier after every iteration of all workers, one update per round.

use serde::{Deserialize, Serialize};

use super::{Opening, PlanRow, Seen, SyncPolicy, UpdateMode};

/// Has no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bsp;

impl SyncPolicy for Bsp {
    fn mode(&self) -> UpdateMode {
        UpdateMode::PerBarrier
    }

    fn open(&mut self, _workers: usize) -> Opening {
        Opening::Quota(1)
    }

    fn observe(&mut self, _now_us: u64, _seen: &[Seen]) -> Option<Vec<PlanRow>> {
        None
    }
}
