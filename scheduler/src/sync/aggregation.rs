//! What becomes of the gradients of a superstep.
//!
//! The policy decides it once per superstep, as an [`Aggregation`]. What others are told follows from that: a
//! worker is told the [`GradientUse`](crate::core::GradientUse) of each iteration, a push carries its
//! [`PushMode`] to the shards, and the barrier carries the [`RoundRule`].

use serde::{Deserialize, Serialize};

/// How the gradients of a superstep become updates of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Each push is a step.
    PerPush,
    /// The weighted mean of all gradients is one step.
    PerBarrier,
    /// Workers step on their own copies; the weighted mean of their changes is subtracted.
    LocalAverage,
    /// Workers step on their own copies; the weighted mean of their changes is the gradient of an outer
    /// optimizer.
    LocalOuter {
        /// Rate of the outer step; the job's own rate is that of the local steps.
        learning_rate: f32,
    },
}

impl Aggregation {
    /// Whether workers push once per superstep.
    pub fn is_local(self) -> bool {
        matches!(self, Self::LocalAverage | Self::LocalOuter { .. })
    }

    /// What the barrier does with the mean of what was accumulated, if anything was.
    pub fn round_rule(self) -> RoundRule {
        match self {
            Self::LocalAverage => RoundRule::Average,
            Self::PerPush | Self::PerBarrier | Self::LocalOuter { .. } => RoundRule::Optimizer,
        }
    }
}

/// What a shard does with one push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PushMode {
    /// It is one optimizer step with that batch's mean gradient.
    Apply,
    /// It is added to the round's mean, weighted by its samples; the mean is applied when the barrier closes.
    Accumulate,
}

/// How the mean of the pushes that were accumulated becomes new parameters when a barrier closes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundRule {
    /// One step of the optimizer that the shards hold, at the barrier's learning rate.
    #[default]
    Optimizer,
    /// The mean is a change of the parameters and is subtracted as it is: parameters are averaged.
    Average,
}
