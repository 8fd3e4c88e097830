//! Asynchronous parallel: no barriers, every push is an update.

use serde::{Deserialize, Serialize};

use super::{Opening, PlanRow, Seen, SyncPolicy, UpdateMode};

/// Has no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asp;

impl SyncPolicy for Asp {
    fn mode(&self) -> UpdateMode {
        UpdateMode::PerPush
    }

    fn open(&mut self, _workers: usize) -> Opening {
        Opening::Free
    }

    fn observe(&mut self, _now_us: u64, _seen: &[Seen]) -> Option<Vec<PlanRow>> {
        None
    }
}
