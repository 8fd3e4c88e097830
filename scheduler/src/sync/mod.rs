//! When workers meet: one trait, and the policies that implement it.

pub mod zipline;

use serde::{Deserialize, Serialize};

/// When the parameter server turns gradients into new parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateMode {
    /// Each push is one optimizer step with that batch's mean gradient.
    PerPush,
    /// The round's pushes are averaged, weighted by their samples, and applied as one step when the barrier closes.
    PerBarrier,
}
