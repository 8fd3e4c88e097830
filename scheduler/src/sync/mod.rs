//! When workers meet and how much work each gets: one trait, and the policies that implement it.
//!
//! A superstep is the span between two barriers. When one opens, the policy says how it will end
//! ([`EndRule`]), what becomes of the gradients ([`Aggregation`]) and how many samples each worker takes.
//! Inside it, the policy's [`Gate`] says how far each worker may go. A monitored superstep is planned once
//! every worker's speed has been seen: the plan names each worker's last iteration.

mod aggregation;
mod asp;
mod auto;
mod bsp;
mod clocks;
mod dssp;
mod elastic_bsp;
mod lb_bsp;
mod local;
mod plan;
mod policy;
mod remaining;
pub mod search;
mod ssp;

use std::collections::BTreeMap;

pub use aggregation::{Aggregation, PushMode, RoundRule};
pub use asp::Asp;
pub use auto::Auto;
pub use bsp::Bsp;
pub use clocks::{Clock, Clocks};
pub use dssp::{Dssp, Verdict};
pub use elastic_bsp::ElasticBsp;
pub use lb_bsp::{ElasticLb, LbBsp};
pub use local::LocalRounds;
pub use plan::{Plan, PlanRequest, PlanRow, SearchOptions, plan};
pub use policy::Policy;
pub use remaining::remaining_rows;
use serde::{Deserialize, Serialize};
pub use ssp::Ssp;

use crate::{balance::Cost, ids::Incarnation};

/// How a superstep will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndRule {
    /// Everybody does this many iterations, then all meet.
    Quota(u32),
    /// It is planned once every worker has pushed this often inside it.
    Monitor {
        /// Pushes after which a worker's speed counts as known.
        pushes: u64,
    },
    /// It has no planned end.
    Free,
}

/// What it takes to know where a superstep ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanningBasis {
    /// It has to be watched first, or never ends by plan.
    Watching,
    /// It ends where it would without any measurement.
    Nothing,
    /// The speeds that were measured before it opens can stand for watching.
    Speeds,
}

/// How a superstep begins, with the reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct SuperstepRules {
    /// Where it ends, or what that is planned from.
    pub ending: EndRule,
    /// What becomes of its gradients.
    pub aggregation: Aggregation,
    /// Samples per iteration of each worker; `None`: the job's batch for everybody.
    pub batches: Option<BTreeMap<Incarnation, u32>>,
    /// Factor on the job's learning rate.
    pub rate_factor: f32,
    /// Whether that is of a round of whole batches, so that one with fewer samples makes a smaller step.
    pub scales_with_samples: bool,
    /// Most iterations between the first and the last worker inside the superstep.
    pub max_lead: Option<u64>,
    /// What the choice rests on, for people.
    pub why: Why,
}

impl SuperstepRules {
    /// The job's batch and learning rate for everybody.
    pub fn new(ending: EndRule, aggregation: Aggregation, why: Why) -> Self {
        Self {
            ending,
            aggregation,
            batches: None,
            rate_factor: 1.0,
            scales_with_samples: false,
            max_lead: None,
            why,
        }
    }
}

/// Why something was decided: a sentence for people, and the figures it rests on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The rule that holds in this superstep, as users name it.
    pub rule: String,
    /// Why it was chosen, without a full stop, where the policy chooses among rules; else empty.
    #[serde(default)]
    pub choice: String,
    /// What it does and why, without a full stop.
    pub reason: String,
    /// Finite numbers by name; a unit is part of the name.
    pub figures: BTreeMap<String, f64>,
}

impl Why {
    /// A rule that needs no figures.
    pub fn rule(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }

    /// Why the rule was chosen, if it was, and what it does.
    pub fn in_words(&self) -> String {
        match self.choice.as_str() {
            "" => self.reason.clone(),
            choice => format!("{choice}: {}", self.reason),
        }
    }

    /// Adds a figure; one that is not finite says nothing and is left out.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
        self
    }
}

/// What is known when a superstep opens.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Samples per iteration and worker as the job says.
    pub batch: u32,
    /// The workers that take part, in the order of their incarnations.
    pub workers: &'a [SpeedEstimate],
    /// Whether workers may take steps on their own: they cannot where they have but some rows of the
    /// parameters.
    pub local_rounds: bool,
}

/// One worker's speed, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedEstimate {
    /// Whose speed it is.
    pub worker: Incarnation,
    /// Samples per iteration in the superstep before.
    pub batch: u32,
    /// Samples of its last finished iteration, and how long that took without waiting.
    pub last: Option<(u32, u64)>,
    /// Coefficient of variation of its intervals per sample.
    pub jitter: Option<f64>,
    /// Share of its time that went into moving parameters and gradients.
    pub communication: Option<f64>,
    /// Predicted time as a function of the batch, in proportion to it but for what is the same for any
    /// batch, as far as that is known.
    pub proportional: Option<Cost>,
    /// Predicted time as a function of the batch, fitted to all batches seen; where nothing is fitted, the
    /// proportional one.
    pub fitted: Option<Cost>,
    /// Most samples that fit into its memory.
    pub max_batch: Option<u32>,
}

/// One worker of a monitored superstep, as the planner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerProgress {
    /// Whose progress it is.
    pub worker: Incarnation,
    /// Its last iteration that is finished, counted over the whole job.
    pub finished: u64,
    /// Its last iteration that is granted, counted likewise: it cannot end the superstep before that.
    pub granted: u64,
    /// Iterations it has finished inside this superstep.
    pub in_superstep: u64,
    /// When its last iteration ended, on the engine's clock.
    pub last_end_us: u64,
    /// How long its next one is predicted to take without waiting.
    pub interval_us: u64,
}

/// How far a worker may go, by its clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gate {
    /// Highest clock it may reach as things stand; `None`: no limit.
    pub until: Option<u64>,
    /// The wait can be left to the parameter server: iteration k may be granted before its turn if its pull
    /// waits until every clock is k − 1 − this.
    pub behind: Option<u64>,
}

/// Says when workers must meet and how much each does. One serialisable value per job, driven by one thread;
/// the same calls give the same answers.
pub trait SyncPolicy {
    /// A superstep opens.
    fn open(&mut self, context: &Context<'_>) -> SuperstepRules;

    /// A worker pushed at `at_us`: counts it, and decides what it may do next where that depends on the push.
    fn pushed(&mut self, worker: Incarnation, at_us: u64, clocks: &mut Clocks) {
        clocks.push(worker, at_us);
    }

    /// What it takes to know the end of a superstep that has not begun.
    fn planning_basis(&self) -> PlanningBasis {
        PlanningBasis::Watching
    }

    /// How far a worker may go.
    fn gate(&self, _worker: Incarnation, _clocks: &Clocks) -> Gate {
        Gate::default()
    }

    /// Every worker of a monitored superstep has been seen, or has overrun its prediction; `seen` holds all
    /// of them. What to plan from.
    fn rows(&self, _now_us: u64, _seen: &[WorkerProgress]) -> Vec<PlanRow> {
        Vec::new()
    }

    /// What to plan a monitored superstep from before it begins: at `begin_us` everybody sets out from its
    /// last granted iteration. Only where [`PlanningBasis::Speeds`] suffices.
    fn rows_ahead(&self, _begin_us: u64, _workers: &[WorkerProgress]) -> Vec<PlanRow> {
        Vec::new()
    }

    /// How the window is searched in those rows.
    fn search_options(&self) -> SearchOptions {
        SearchOptions::default()
    }

    /// A planned worker that takes this many times its predicted interval makes the superstep be planned
    /// again.
    fn overrun_factor(&self) -> Option<f64> {
        None
    }
}
