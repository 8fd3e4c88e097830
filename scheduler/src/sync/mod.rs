//! When workers meet: one trait, and the policies that implement it.
//!
//! A superstep is the span between two barriers. When one opens, the policy says whether its end is known at once
//! (a quota per worker), must be found out by watching (monitoring), or never comes. While it is watched, each
//! report asks the policy whether it can plan; a plan names each worker's last iteration.

mod asp;
mod bsp;
mod elastic_bsp;
mod plan;
pub mod zipline;

pub use asp::Asp;
pub use bsp::Bsp;
pub use elastic_bsp::ElasticBsp;
pub use plan::{Plan, PlanRequest, PlanRow, plan};

use serde::{Deserialize, Serialize};

use crate::{ids::Incarnation, spec::PolicySpec};

/// When the parameter server turns gradients into new parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateMode {
    /// Each push is one optimizer step with that batch's mean gradient.
    PerPush,
    /// The round's pushes are averaged, weighted by their samples, and applied as one step when the barrier closes.
    PerBarrier,
}

/// How the mean of a round becomes new parameters where the mode is [`UpdateMode::PerBarrier`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundRule {
    /// One step of the optimizer that the shards hold, at the barrier's learning rate.
    #[default]
    Optimizer,
    /// The mean is a change of the parameters and is subtracted as it is: parameters are averaged.
    Average,
}

/// What is known about the end of a superstep when it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opening {
    /// Everybody does this many iterations, then all meet.
    Quota(u32),
    /// The end will be planned once the workers' speeds have been seen.
    Monitor,
    /// No end is planned.
    Free,
}

/// One worker of the open superstep, as the policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub worker: Incarnation,
    /// Its last iteration that is finished, and its last one that is granted, counted over the whole job.
    pub finished: u64,
    pub granted: u64,
    /// Iterations it has finished inside this superstep.
    pub in_superstep: u64,
    /// When its last iteration ended, and how long that took without waiting, on the engine's clock.
    pub last_end_us: u64,
    pub interval_us: u64,
}

/// Says when workers must meet. One serialisable value per job, driven by one thread; the same calls give the same
/// answers.
pub trait SyncPolicy {
    /// How the parameter server applies pushes under this policy.
    fn mode(&self) -> UpdateMode;

    /// A superstep opens for `workers` workers.
    fn open(&mut self, workers: usize) -> Opening;

    /// A worker of a monitored superstep finished an iteration at `now_us`; `seen` holds every worker of it.
    /// Returns what to plan from, once enough is known.
    fn observe(&mut self, now_us: u64, seen: &[Seen]) -> Option<Vec<PlanRow>>;
}

/// A policy with its state, as stored with the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    Bsp(Bsp),
    Asp(Asp),
    ElasticBsp(ElasticBsp),
}

impl Policy {
    /// The policy in its first state.
    pub fn new(spec: PolicySpec) -> Self {
        match spec {
            PolicySpec::Bsp => Self::Bsp(Bsp),
            PolicySpec::Asp => Self::Asp(Asp),
            PolicySpec::ElasticBsp { lookahead } => Self::ElasticBsp(ElasticBsp::new(lookahead)),
        }
    }

    /// The trait behind the stored form.
    pub fn as_dyn(&mut self) -> &mut dyn SyncPolicy {
        match self {
            Self::Bsp(p) => p,
            Self::Asp(p) => p,
            Self::ElasticBsp(p) => p,
        }
    }
}
