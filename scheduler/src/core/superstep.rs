//! One superstep: the work between two barriers, and the barrier that ends it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    graph::TaskId,
    ids::{Incarnation, ShardIndex},
    sync::{Aggregation, EndRule, Plan, PlanRow, SuperstepRules, Why, search::Alternative},
};

/// What is known about the end of an open superstep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuperstepPhase {
    /// Not decided; the roster is open to joiners.
    Open(EndRule),
    /// Being computed from these rows; the roster is frozen.
    Planning(Vec<PlanRow>),
    /// Leased to every shard; the roster is frozen.
    Ordered,
    /// Closed on every shard; kept for people.
    Closed { closed_us: u64, actual_wait_us: u64 },
}

/// A worker's part of one superstep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterEntry {
    /// Last iteration before this superstep.
    pub base: u64,
    /// Last iteration of this superstep, once decided.
    pub last: Option<u64>,
    /// Samples per iteration.
    pub batch: u32,
    /// Predicted time of one iteration, where everybody does as many and all speeds are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_interval_us: Option<u64>,
    /// When its last iteration ended; known once the barrier has closed and it has reported that iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived_us: Option<u64>,
}

impl RosterEntry {
    /// Of somebody whose end in the superstep is not decided.
    pub(super) fn new(base: u64, batch: u32) -> Self {
        Self { base, last: None, batch, predicted_interval_us: None, arrived_us: None }
    }

    /// Predicted time of all its iterations; `None` where that does not rest on its speed alone.
    pub(super) fn predicted_us(&self) -> Option<u64> {
        Some(self.predicted_interval_us?.saturating_mul(self.iterations()))
    }

    /// Iterations that it has in the superstep, as far as that is decided.
    pub(super) fn iterations(&self) -> u64 {
        self.last.map_or(0, |last| last.saturating_sub(self.base))
    }

    /// Whether it does any iteration of the superstep.
    pub(super) fn has_part(&self) -> bool {
        self.iterations() > 0
    }
}

/// The work between two barriers, and the barrier that ends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuperstepState {
    /// How far its end is decided.
    #[serde(rename = "end")]
    pub phase: SuperstepPhase,
    /// Who takes part. Whoever has left is struck from it once sealed, unless it is closed.
    pub roster: BTreeMap<Incarnation, RosterEntry>,
    /// Of the barrier's order that the shards have; 0 before the first.
    pub revision: u32,
    /// Whether shards keep a copy of the version that its barrier makes: no samples were left at an order.
    pub pin: bool,
    /// Rate of its iterations relative to the job's.
    pub rate_factor: f32,
    /// Whether a round of fewer samples than that stands for makes a smaller step.
    #[serde(default)]
    pub scales_with_samples: bool,
    /// Rate of a whole round's single step, where there is one and no samples are missing.
    pub learning_rate: f32,
    /// Samples that were handed out before it opened; `None` where an earlier release has opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<u64>,
    /// Samples of all its iterations, from when its end is decided; those of iterations that were lost since
    /// do not count.
    #[serde(default)]
    pub samples: Option<u64>,
    /// How its gradients become updates of the parameters.
    #[serde(rename = "rounds")]
    pub aggregation: Aggregation,
    /// Whether the batches differ from the job's.
    pub balanced: bool,
    /// Most iterations by which a worker may lead the slowest until it is planned; `None`: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lead: Option<u64>,
    /// When it opened, in epoch µs.
    pub opened_us: u64,
    /// Workers of a monitored superstep that have not been seen often enough.
    #[serde(skip)]
    pub unobserved: BTreeSet<Incarnation>,
    /// Iterations of each worker that are over, fewest first: while it is open, where the lead is bounded.
    #[serde(skip)]
    pub progress: BTreeSet<(u64, Incarnation)>,
    /// Who had not reported its last iteration when the barrier closed: until nobody is left, it is not
    /// known how long all waited.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unreported: BTreeSet<Incarnation>,
    /// Why it is as it is.
    pub why: Why,
    /// Shards that have closed it, with the pushes each had applied by then.
    pub closed_by: BTreeMap<ShardIndex, u64>,
    /// What the decision rested on: predicted ends of each worker's next iterations.
    pub predicted: Vec<PlanRow>,
    /// Windows that were weighed besides the chosen one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Predicted wait of the worker that waits longest, by the newest plan; `None` without a plan.
    pub span_us: Option<u64>,
    /// Predicted waits of all together, by the newest plan or their speeds; `None`: not predicted.
    pub predicted_wait_us: Option<u64>,
    /// When everybody is expected to be there, by the newest plan, in epoch µs; `None` without a plan.
    pub sync_at_us: Option<u64>,
}

impl SuperstepState {
    /// One that has just opened for these workers, whose batches are the job's, and in which no round takes a
    /// step.
    pub(super) fn open(
        rules: SuperstepRules,
        roster: BTreeMap<Incarnation, RosterEntry>,
        now_us: u64,
    ) -> Self {
        let SuperstepRules { ending, aggregation, rate_factor, scales_with_samples, max_lead, why, .. } =
            rules;
        Self {
            phase: SuperstepPhase::Open(ending),
            unobserved: match ending {
                EndRule::Monitor { .. } => roster.keys().copied().collect(),
                EndRule::Quota(_) | EndRule::Free => BTreeSet::new(),
            },
            roster,
            revision: 0,
            pin: false,
            rate_factor,
            scales_with_samples,
            learning_rate: 0.0,
            begins_at: None,
            samples: None,
            aggregation,
            balanced: false,
            max_lead,
            opened_us: now_us,
            progress: BTreeSet::new(),
            unreported: BTreeSet::new(),
            why,
            closed_by: BTreeMap::new(),
            predicted: Vec::new(),
            alternatives: Vec::new(),
            span_us: None,
            predicted_wait_us: None,
            sync_at_us: None,
        }
    }

    /// Rate of the round's single step, in a job of this batch. Where the rate is multiplied by the batches
    /// that a round has, one with fewer samples makes a smaller step: the mean of 29 samples is no step
    /// for four workers.
    pub(super) fn step_rate(&self, batch: u32) -> f32 {
        let whole = batch as f32 * self.rate_factor;
        match self.samples {
            // An earlier release has opened it, and says it by the factor alone.
            Some(samples) if self.scales_with_samples || self.rate_factor != 1.0 => {
                self.learning_rate * (samples as f32 / whole).min(1.0)
            }
            _ => self.learning_rate,
        }
    }

    /// Samples that all together have begun with when a worker takes this iteration of a local round: they
    /// step side by side, and none is ahead of the others by what was granted to it first.
    pub(super) fn local_step_begins_at(&self, worker: Incarnation, seq: u64) -> Option<u64> {
        let begins_at = self.begins_at.filter(|_| self.aggregation.is_local())?;
        let steps = seq.checked_sub(self.roster.get(&worker)?.base + 1)?;
        let of_one_step: u64 = self.roster.values().map(|entry| u64::from(entry.batch)).sum();
        Some(begins_at + steps * of_one_step)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, SuperstepPhase::Closed { .. })
    }

    /// Whether its barrier is leased to the shards, or was.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.phase, SuperstepPhase::Ordered | SuperstepPhase::Closed { .. })
    }

    /// Last push of everybody on its roster, as the order of its barrier says.
    pub(super) fn order_roster(&self) -> BTreeMap<Incarnation, u64> {
        self.roster.iter().map(|(w, entry)| (*w, entry.last.unwrap_or(entry.base))).collect()
    }

    /// Whether no barrier is planned for its end.
    pub fn is_endless(&self) -> bool {
        matches!(self.phase, SuperstepPhase::Open(EndRule::Free))
    }

    /// Whether somebody who joins now still enters.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, SuperstepPhase::Open(_))
    }

    /// Whether it has one worker, whose pushes need no barrier: there is nobody to meet.
    pub(super) fn is_of_one_alone(&self) -> bool {
        self.roster.len() == 1 && self.aggregation == Aggregation::PerPush && self.max_lead.is_none()
    }

    /// Whether workers are held back that lead too far.
    pub(super) fn bounds_lead(&self) -> bool {
        self.is_open() && self.max_lead.is_some()
    }

    /// A worker has got further: `before` and `now` are the last iterations up to which all were and are
    /// over. Cost O(log n).
    pub(super) fn count_progress(&mut self, worker: Incarnation, before: u64, now: u64) {
        if let Some(entry) = self.roster.get(&worker).filter(|_| self.bounds_lead()) {
            self.progress.remove(&(before.saturating_sub(entry.base), worker));
            self.progress.insert((now.saturating_sub(entry.base), worker));
        }
    }

    /// Keeps what a plan says of its window, for those who ask why.
    pub(super) fn follow(&mut self, plan: Plan) {
        self.alternatives = plan.alternatives;
        self.span_us = Some(plan.span_us);
        self.predicted_wait_us = Some(plan.predicted_wait_us);
        self.sync_at_us = Some(plan.sync_at_us);
    }

    /// Iterations that every worker has finished in it.
    pub(super) fn least_progress(&self) -> u64 {
        self.progress.first().map_or(0, |(finished, _)| *finished)
    }

    /// When a barrier that has closed had everybody's part: what it took the engine to hear of it is nobody's
    /// waiting. `None` while it is open.
    pub(super) fn met_us(&self) -> Option<u64> {
        let SuperstepPhase::Closed { closed_us, .. } = self.phase else { return None };
        let arrivals = self.roster.values().filter(|entry| entry.has_part()).map(|entry| entry.arrived_us);
        let last: Option<Vec<u64>> = arrivals.collect();
        Some(last.and_then(|arrived| arrived.into_iter().max()).map_or(closed_us, |met| met.min(closed_us)))
    }

    /// The iterations this barrier waits for.
    pub(super) fn iterations(&self) -> Vec<TaskId> {
        let last = |(w, entry): (&Incarnation, &RosterEntry)| {
            let seq = entry.last.filter(|&l| l > entry.base)?;
            Some(TaskId::Iteration { worker: *w, seq })
        };
        self.roster.iter().filter_map(last).collect()
    }
}
