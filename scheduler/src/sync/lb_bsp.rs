//! LB-BSP (Chen et al., SoCC 2020, arXiv:1806.02508): BSP whose batch sizes follow the workers' predicted
//! speeds, so that all finish together. The sum of the batches stays what it would be without; gradients are
//! weighted by samples, so every sample counts alike.
//!
//! Minimize maxᵢ tᵢ(xᵢ) subject to Σ xᵢ = X. On a CPU tᵢ(x) = fᵢ + x / vᵢ (rule `proportional`; fᵢ is ours,
//! the paper has none); on a GPU it is flat, then linear, fitted to the batches seen (rule `curve`); without
//! any model a step of batch moves from the straggler to the leader (rule `step`). Sizes change between
//! rounds only, and are whole: see [`crate::balance`].
//!
//! *Elastic and load-balanced* joins both ideas: batch sizes even out what lasts, ElasticBSP's barriers
//! absorb the rest. There a push is a step by itself, and its gradient is scaled by the worker's share of the
//! average batch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Aggregation, Context, ElasticBsp, EndRule, PlanRow, PlanningBasis, SearchOptions, SpeedEstimate,
    SuperstepRules, SyncPolicy, Why, WorkerProgress,
};
use crate::{
    balance::{Bounds, Cost, RoundTime, Stepping, assign},
    ids::Incarnation,
    spec::{BalanceOptions, BalanceRule, ElasticOptions},
};

/// A step that is shorter is mostly transfers and the start of a run, and what it is measured at is mostly
/// noise.
const SHORT_STEP_US: f64 = 10_000.0;

/// Chooses batch sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Balancer {
    options: BalanceOptions,
    stepping: Option<Stepping>,
}

impl Balancer {
    fn new(options: BalanceOptions) -> Self {
        Self { options, stepping: None }
    }

    /// What it takes to know where a superstep ends, where that is `of_rule` without batch sizes.
    fn planning_basis(&self, of_rule: PlanningBasis) -> PlanningBasis {
        // Moving samples step by step means to see what each step has brought.
        match self.options.rule {
            BalanceRule::Step => PlanningBasis::Watching,
            BalanceRule::Proportional | BalanceRule::Curve => of_rule,
        }
    }

    fn bounds(&self, pace: &SpeedEstimate, least: u32) -> Bounds {
        let max = self.options.max.min(pace.max_batch.unwrap_or(u32::MAX)).max(1);
        Bounds { min: self.options.min.max(least).clamp(1, max), max }
    }

    /// Batch sizes for the superstep that opens, none below what `least` says of its worker; `None` while a
    /// speed is unknown.
    fn batches(
        &mut self,
        context: &Context<'_>,
        least: impl Fn(Cost) -> u32,
    ) -> Option<(BTreeMap<Incarnation, u32>, Why)> {
        let workers = context.workers;
        let total = u64::from(context.batch) * workers.len() as u64;
        let cost = |pace: &SpeedEstimate| match self.options.rule {
            BalanceRule::Curve => pace.fitted,
            BalanceRule::Proportional | BalanceRule::Step => pace.proportional,
        };
        let costs: Vec<Cost> = workers.iter().map(cost).collect::<Option<_>>()?;
        let bounds: Vec<Bounds> =
            workers.iter().zip(&costs).map(|(pace, cost)| self.bounds(pace, least(*cost))).collect();
        let sizes = match self.options.rule {
            BalanceRule::Step => self.step(total, workers, &bounds),
            BalanceRule::Proportional | BalanceRule::Curve => {
                assign(total, &costs.iter().copied().zip(bounds).collect::<Vec<_>>())
            }
        };
        let longest = |size: &dyn Fn(usize) -> u32| {
            costs.iter().enumerate().map(|(i, c)| c.us(size(i))).fold(0.0, f64::max)
        };
        let why = Why::rule("batch sizes follow the predicted speeds")
            .with("longest_predicted_us", longest(&|i| sizes[i]))
            .with("longest_with_equal_batches_us", longest(&|_| context.batch));
        Some((workers.iter().map(|p| p.worker).zip(sizes).collect(), why))
    }

    /// One round of the leader and straggler rule.
    fn step(&mut self, total: u64, workers: &[SpeedEstimate], bounds: &[Bounds]) -> Vec<u32> {
        // Another number of workers means another total: the rule starts again.
        let kept = self.stepping.take().filter(|s| s.total() == total);
        let times: Vec<RoundTime> = workers
            .iter()
            .zip(bounds)
            .map(|(p, &bounds)| {
                let (batch, us) = p.last.unwrap_or((p.batch, 0));
                RoundTime { worker: p.worker, batch, us, bounds }
            })
            .collect();
        let stepping = self.stepping.insert(kept.unwrap_or_else(|| Stepping::new(total)));
        let changed = stepping.round(&times);
        let size =
            |p: &SpeedEstimate| changed.as_ref().and_then(|c| c.get(&p.worker)).copied().unwrap_or(p.batch);
        workers.iter().map(size).collect()
    }
}

/// BSP with batch sizes that follow the speeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LbBsp {
    balancer: Balancer,
}

impl LbBsp {
    /// With these settings.
    pub fn new(options: BalanceOptions) -> Self {
        Self { balancer: Balancer::new(options) }
    }
}

impl SyncPolicy for LbBsp {
    fn open(&mut self, context: &Context<'_>) -> SuperstepRules {
        let (batches, why) = self
            .balancer
            .batches(context, |_| 1)
            .map_or_else(|| (None, Why::rule("speeds are not known yet")), |(b, why)| (Some(b), why));
        SuperstepRules { batches, ..SuperstepRules::new(EndRule::Quota(1), Aggregation::PerBarrier, why) }
    }

    fn planning_basis(&self) -> PlanningBasis {
        self.balancer.planning_basis(PlanningBasis::Nothing)
    }
}

/// ElasticBSP with batch sizes that follow the speeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElasticLb {
    elastic: ElasticBsp,
    balancer: Balancer,
}

impl ElasticLb {
    /// With these settings.
    pub fn new(elastic: ElasticOptions, balance: BalanceOptions) -> Self {
        Self { elastic: ElasticBsp::new(elastic), balancer: Balancer::new(balance) }
    }
}

impl SyncPolicy for ElasticLb {
    fn open(&mut self, context: &Context<'_>) -> SuperstepRules {
        let opening = self.elastic.open(context);
        // Who has a small batch makes many steps until the barrier: noise would multiply them.
        let least = |cost: Cost| match cost.us(context.batch) < SHORT_STEP_US {
            true => context.batch.div_ceil(2),
            false => 1,
        };
        match self.balancer.batches(context, least) {
            Some((batches, why)) => {
                let reason = format!("{}; {}", why.reason, opening.why.reason);
                SuperstepRules { batches: Some(batches), why: Why { reason, ..why }, ..opening }
            }
            None => opening,
        }
    }

    fn rows(&self, now_us: u64, seen: &[WorkerProgress]) -> Vec<PlanRow> {
        self.elastic.rows(now_us, seen)
    }

    fn planning_basis(&self) -> PlanningBasis {
        self.balancer.planning_basis(self.elastic.planning_basis())
    }

    fn rows_ahead(&self, begin_us: u64, workers: &[WorkerProgress]) -> Vec<PlanRow> {
        self.elastic.rows_ahead(begin_us, workers)
    }

    fn search_options(&self) -> SearchOptions {
        self.elastic.search_options()
    }

    fn overrun_factor(&self) -> Option<f64> {
        self.elastic.overrun_factor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn pace(worker: u64, us_per_sample: f64) -> SpeedEstimate {
        SpeedEstimate {
            worker: Incarnation(worker),
            batch: 32,
            last: Some((32, (us_per_sample * 32.0) as u64)),
            jitter: Some(0.0),
            communication: Some(0.0),
            proportional: Some(Cost::Proportional { us_per_sample }),
            fitted: Some(Cost::Proportional { us_per_sample }),
            max_batch: None,
        }
    }

    #[test]
    fn a_worker_of_half_the_speed_gets_half_the_batch() {
        let workers = [pace(1, 10.0), pace(2, 10.0), pace(3, 10.0), pace(4, 20.0)];
        let opening = LbBsp::new(BalanceOptions::default()).open(&Context {
            batch: 35,
            workers: &workers,
            local_rounds: true,
        });
        let batches: Vec<u32> = opening.batches.unwrap().into_values().collect();
        assert_eq!(batches, [40, 40, 40, 20]);
        assert_eq!(opening.why.figures["longest_predicted_us"], 400.0);
        assert_eq!(opening.why.figures["longest_with_equal_batches_us"], 700.0);
    }

    #[test]
    fn an_unknown_speed_means_equal_batches() {
        let mut workers = [pace(1, 10.0), pace(2, 20.0)];
        workers[1].proportional = None;
        assert_eq!(
            LbBsp::new(BalanceOptions::default())
                .open(&Context { batch: 32, workers: &workers, local_rounds: true })
                .batches,
            None
        );
    }

    #[test]
    fn where_steps_are_short_nobody_has_less_than_half_a_batch_between_elastic_barriers() {
        let batches = |short_us: f64, policy: &mut dyn SyncPolicy| {
            let workers = [pace(1, short_us), pace(2, 9.0 * short_us)];
            let context = Context { batch: 32, workers: &workers, local_rounds: true };
            policy.open(&context).batches.unwrap().into_values().collect::<Vec<_>>()
        };
        let elastic = || ElasticLb::new(ElasticOptions::default(), BalanceOptions::default());
        assert_eq!(batches(30.0, &mut elastic()), [48, 16]);
        assert_eq!(batches(50.0, &mut elastic()), [58, 6], "14 ms at the slower one");
        assert_eq!(batches(30.0, &mut LbBsp::new(BalanceOptions::default())), [58, 6], "a round is one step");
    }

    #[test]
    fn a_memory_cap_sends_the_rest_to_the_others() {
        let mut workers = [pace(1, 10.0), pace(2, 10.0)];
        workers[0].max_batch = Some(8);
        let opening = ElasticLb::new(ElasticOptions::default(), BalanceOptions::default()).open(&Context {
            batch: 32,
            workers: &workers,
            local_rounds: true,
        });
        assert_eq!(opening.batches.unwrap().into_values().collect::<Vec<_>>(), [8, 56]);
        assert!(matches!(opening.ending, EndRule::Monitor { .. }));
    }
}
