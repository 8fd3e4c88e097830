//! One training iteration, as the executor is told of it.

use syncline_ps::shard::ReadCondition;
use syncline_scheduler::{core::GradientUse, graph::TaskId, samples::SampleRange};

/// What the iteration that follows at once will pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextPull {
    pub condition: ReadCondition,
    /// Its samples.
    pub range: SampleRange,
}

/// One training iteration as the executor was told.
pub(super) struct Iteration {
    pub task: TaskId,
    pub seq: u64,
    pub range: SampleRange,
    pub learning_rate: f32,
    pub gradient: GradientUse,
}

impl Iteration {
    /// Whether it is a step of a round of local steps.
    pub(super) fn is_local_step(&self) -> bool {
        matches!(self.gradient, GradientUse::LocalStep { .. })
    }

    /// Whether it is the last one of such a round.
    pub(super) fn ends_round(&self) -> bool {
        matches!(self.gradient, GradientUse::LocalStep { last, .. } if last == self.seq)
    }
}
