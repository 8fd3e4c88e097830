//! Batch sizes that let all workers finish together: LB-BSP (Chen et al., SoCC 2020, arXiv:1806.02508).
//!
//! The samples of an iteration are a constant total X; what changes is how many of them each worker gets.
//! Where times can be predicted, [`assign`] solves min max tᵢ(xᵢ) subject to Σ xᵢ = X exactly; [`CurveFit`]
//! learns tᵢ. [`Stepping`] needs no prediction: it moves samples from the slowest worker to the fastest and
//! watches.

mod assign;
mod cost;
mod curve_fit;
mod stepping;

pub use assign::assign;
pub use cost::Cost;
pub use curve_fit::{CurveFit, MAX_FIXED_SHARE};
pub use stepping::{RoundTime, Stepping};

use serde::{Deserialize, Serialize};

/// Fewest and most samples a worker may get: the user's settings, and what its memory holds. Where `max` is
/// below `min`, `min` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Fewest samples per iteration.
    pub min: u32,
    /// Most samples per iteration, inclusive.
    pub max: u32,
}

impl Bounds {
    fn clamp(self, batch: u32) -> u32 {
        batch.clamp(self.min, self.most())
    }

    fn most(self) -> u32 {
        self.max.max(self.min)
    }
}
