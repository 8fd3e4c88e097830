//! Auto: picks among the others what suits the workers as they are, says why, and may change its mind
//! whenever a superstep opens.
//!
//! Three figures decide, all predicted for the superstep to come: the share of time that goes into moving
//! parameters, the share that BSP would wait, and the jitter. With mᵢ the predicted interval of worker i at
//! the job's batch, j the mean coefficient of variation and n workers, BSP waits 1 − mean m / (max m · (1 +
//! j·√(2 ln n))): the last factor approximates the largest of n normal deviations. The thresholds are ours;
//! each has a margin, so that noise does not flip the choice back and forth.
//!
//! The job's learning rate is meant for updates per push. Where a round is averaged into one update the rate
//! is multiplied by the batches that one iteration of every worker makes (linear scaling: Goyal et al. 2017,
//! arXiv:1706.02677), so that a sample of a BSP round counts as one of a push. A local round steps at the
//! job's rate, and the mean of its workers' changes is taken, as Local SGD does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Aggregation, Bsp, Clocks, Context, ElasticBsp, ElasticLb, Gate, LocalRounds, PlanRow, PlanningBasis,
    SearchOptions, SpeedEstimate, SuperstepRules, SyncPolicy, WorkerProgress,
};
use crate::{
    ids::Incarnation,
    spec::{BalanceOptions, ElasticOptions},
};

/// Steps of a local round, where transfers are what costs.
const LOCAL_STEPS: u32 = 8;
/// Above this share of time in transfers, local rounds begin; below the second they end.
const TRANSFER_HIGH: f64 = 0.5;
const TRANSFER_LOW: f64 = 0.3;
/// Below this share of waiting BSP is cheap; above the second it is not.
const WAIT_LOW: f64 = 0.10;
const WAIT_HIGH: f64 = 0.15;
/// Up to this jitter a difference in speed lasts long enough to size batches by it; the second is the margin.
const JITTER_STEADY: f64 = 0.15;
const JITTER_WILD: f64 = 0.25;

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Choice {
    Bsp,
    ElasticBsp,
    ElasticLb,
    LocalSgd,
}

/// The present choice, and the policies to choose from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Auto {
    choice: Option<Choice>,
    elastic: ElasticBsp,
    elastic_lb: ElasticLb,
}

/// What the decision rests on.
#[derive(Debug, Clone, Copy)]
struct Figures {
    transfer: f64,
    bsp_wait: f64,
    jitter: f64,
    speed_ratio: f64,
}

impl Figures {
    /// Of the workers of which all is known, if that are most of them: one that has just come is taken to be
    /// as the others are.
    fn of(context: &Context<'_>) -> Option<Self> {
        let known = context.workers.iter().filter_map(|pace| {
            Some((pace.proportional?.us(context.batch), pace.communication?, pace.jitter?))
        });
        let known: Vec<(f64, f64, f64)> = known.collect();
        if known.len() < 2 || 2 * known.len() <= context.workers.len() {
            return None;
        }
        let n = known.len() as f64;
        let mut transfer = 0.0;
        let mut jitter = 0.0;
        let (mut sum, mut longest, mut shortest) = (0.0, 0.0f64, f64::INFINITY);
        for (us, communication, of_worker) in known {
            transfer += communication / n;
            jitter += of_worker / n;
            sum += us;
            longest = longest.max(us);
            shortest = shortest.min(us);
        }
        let spread = 1.0 + jitter * (2.0 * n.ln()).sqrt();
        let bsp_wait = 1.0 - sum / n / (longest * spread).max(f64::MIN_POSITIVE);
        Some(Self { transfer, bsp_wait, jitter, speed_ratio: longest / shortest.max(f64::MIN_POSITIVE) })
    }

    /// The choice, given the present one.
    fn choose(&self, present: Option<Choice>, local_rounds: bool) -> (Choice, String) {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let limit = |is: Choice, enter: f64, stay: f64| if present == Some(is) { stay } else { enter };
        if local_rounds && self.transfer >= limit(Choice::LocalSgd, TRANSFER_HIGH, TRANSFER_LOW) {
            let reason = format!("{} of the time goes into moving parameters", percent(self.transfer));
            return (Choice::LocalSgd, reason);
        }
        if self.bsp_wait <= limit(Choice::Bsp, WAIT_LOW, WAIT_HIGH) {
            let reason =
                format!("waiting for everybody in every round costs only {}", percent(self.bsp_wait));
            return (Choice::Bsp, reason);
        }
        let wait = format!("a barrier in every round would cost {} of the time", percent(self.bsp_wait));
        if self.jitter <= limit(Choice::ElasticLb, JITTER_STEADY, JITTER_WILD) {
            let reason = format!(
                "{wait}; the speeds differ by a steady factor of {:.1}, which batch sizes even out",
                self.speed_ratio
            );
            return (Choice::ElasticLb, reason);
        }
        let reason =
            format!("{wait}, and the speeds jitter too much ({}) to size batches by", percent(self.jitter));
        (Choice::ElasticBsp, reason)
    }
}

impl Auto {
    /// Starts with ElasticBSP, until speeds are known.
    pub fn new(elastic: ElasticOptions, balance: BalanceOptions) -> Self {
        Self { choice: None, elastic: ElasticBsp::new(elastic), elastic_lb: ElasticLb::new(elastic, balance) }
    }

    fn planner(&self) -> &dyn SyncPolicy {
        match self.choice {
            Some(Choice::ElasticLb) => &self.elastic_lb,
            _ => &self.elastic,
        }
    }
}

/// How many of the job's batches one iteration of every worker makes; `sizes`: of those whose batches were
/// chosen.
fn batches_at_once(context: &Context<'_>, sizes: Option<&BTreeMap<Incarnation, u32>>) -> f32 {
    let size = |pace: &SpeedEstimate| {
        let chosen = sizes.and_then(|sizes| sizes.get(&pace.worker)).copied();
        chosen.unwrap_or_else(|| context.batch.min(pace.max_batch.unwrap_or(u32::MAX)))
    };
    let samples: u64 = context.workers.iter().map(|pace| u64::from(size(pace))).sum();
    samples as f32 / context.batch as f32
}

impl SyncPolicy for Auto {
    fn open(&mut self, context: &Context<'_>) -> SuperstepRules {
        let figures = Figures::of(context);
        let known = match figures {
            Some(figures) => Some(figures.choose(self.choice, context.local_rounds)),
            // With a change of the rule a local optimizer would begin anew.
            None if context.workers.len() > 1 => {
                self.choice.map(|choice| (choice, "as before, until more speeds are known".to_owned()))
            }
            None => None,
        };
        self.choice = known.as_ref().map(|(choice, _)| *choice);
        let (choice, why) =
            known.unwrap_or_else(|| (Choice::ElasticBsp, "the speeds are not known yet".to_owned()));
        let (rule, mut opening) = match choice {
            Choice::Bsp => ("bsp", Bsp.open(context)),
            Choice::ElasticBsp => ("elastic-bsp", self.elastic.open(context)),
            Choice::ElasticLb => ("elastic-lb", self.elastic_lb.open(context)),
            Choice::LocalSgd => ("local-sgd", LocalRounds::average(LOCAL_STEPS).open(context)),
        };
        if opening.aggregation == Aggregation::PerBarrier {
            opening.rate_factor = batches_at_once(context, opening.batches.as_ref());
            opening.scales_with_samples = context.workers.len() > 1;
        }
        (opening.why.rule, opening.why.choice) = (rule.to_owned(), why);
        if let Some(f) = figures {
            opening.why = opening
                .why
                .with("transfer_share", f.transfer)
                .with("bsp_wait_share", f.bsp_wait)
                .with("jitter", f.jitter)
                .with("speed_ratio", f.speed_ratio);
        }
        opening
    }

    fn gate(&self, worker: Incarnation, clocks: &Clocks) -> Gate {
        self.planner().gate(worker, clocks)
    }

    fn rows(&self, now_us: u64, seen: &[WorkerProgress]) -> Vec<PlanRow> {
        self.planner().rows(now_us, seen)
    }

    fn planning_basis(&self) -> PlanningBasis {
        match self.choice {
            Some(Choice::Bsp) => Bsp.planning_basis(),
            Some(Choice::ElasticBsp | Choice::ElasticLb) => self.planner().planning_basis(),
            None | Some(Choice::LocalSgd) => PlanningBasis::Watching,
        }
    }

    fn rows_ahead(&self, begin_us: u64, workers: &[WorkerProgress]) -> Vec<PlanRow> {
        self.planner().rows_ahead(begin_us, workers)
    }

    fn search_options(&self) -> SearchOptions {
        self.planner().search_options()
    }

    fn overrun_factor(&self) -> Option<f64> {
        self.planner().overrun_factor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Cost;

    fn workers(us_per_sample: &[f64], jitter: f64, transfer: f64) -> Vec<SpeedEstimate> {
        let pace = |(i, &us_per_sample): (usize, &f64)| SpeedEstimate {
            worker: Incarnation(i as u64 + 1),
            batch: 32,
            last: Some((32, 1)),
            jitter: Some(jitter),
            communication: Some(transfer),
            proportional: Some(Cost::Proportional { us_per_sample }),
            fitted: Some(Cost::Proportional { us_per_sample }),
            max_batch: None,
        };
        us_per_sample.iter().enumerate().map(pace).collect()
    }

    fn rule(auto: &mut Auto, workers: &[SpeedEstimate]) -> String {
        auto.open(&Context { batch: 32, workers, local_rounds: true }).why.rule
    }

    #[test]
    fn choices_table() {
        #[rustfmt::skip]
        let cases: &[(&str, &[f64], f64, f64, &str)] = &[
            ("all alike",                     &[10.0, 10.0, 10.0, 10.0], 0.01, 0.1, "bsp"),
            ("one twice as slow, steady",     &[10.0, 10.0, 10.0, 20.0], 0.01, 0.1, "elastic-lb"),
            ("one twice as slow, wild",       &[10.0, 10.0, 10.0, 20.0], 0.50, 0.1, "elastic-bsp"),
            ("alike on average, wild",        &[10.0, 10.0, 10.0, 10.0], 0.50, 0.1, "elastic-bsp"),
            ("transfers eat the time",        &[10.0, 10.0, 10.0, 20.0], 0.01, 0.8, "local-sgd"),
        ];
        for (name, speeds, jitter, transfer, want) in cases {
            let mut auto = Auto::new(ElasticOptions::default(), BalanceOptions::default());
            assert_eq!(rule(&mut auto, &workers(speeds, *jitter, *transfer)), *want, "{name}");
        }
    }

    #[test]
    fn it_starts_elastic_and_changes_its_mind_when_the_workers_change() {
        let mut auto = Auto::new(ElasticOptions::default(), BalanceOptions::default());
        let mut unknown = workers(&[10.0, 10.0], 0.0, 0.0);
        unknown[1].proportional = None;
        assert_eq!(rule(&mut auto, &unknown), "elastic-bsp");
        assert_eq!(rule(&mut auto, &workers(&[10.0, 10.0], 0.0, 0.0)), "bsp");
        assert_eq!(rule(&mut auto, &workers(&[10.0, 30.0], 0.0, 0.0)), "elastic-lb");
        // A wait of 12 % lies in the margin: the choice stays what it was, coming from either side.
        assert_eq!(rule(&mut auto, &workers(&[10.0, 13.2], 0.0, 0.0)), "elastic-lb");
        assert_eq!(rule(&mut auto, &workers(&[10.0, 10.0], 0.0, 0.0)), "bsp");
        assert_eq!(rule(&mut auto, &workers(&[10.0, 13.2], 0.0, 0.0)), "bsp");
    }

    #[test]
    fn it_stays_with_its_choice_when_somebody_joins_of_whom_nothing_is_known() {
        let mut auto = Auto::new(ElasticOptions::default(), BalanceOptions::default());
        let mut all = workers(&[10.0, 10.0, 10.0, 10.0], 0.01, 0.9);
        assert_eq!(rule(&mut auto, &all[..2]), "local-sgd");
        (all[2].communication, all[3].jitter) = (None, None);
        assert_eq!(rule(&mut auto, &all[..3]), "local-sgd", "two of three are known");
        assert_eq!(
            rule(&mut auto, &all),
            "local-sgd",
            "two of four are not enough, and say nothing against it"
        );
        assert_eq!(rule(&mut auto, &all[2..3]), "elastic-bsp", "nobody else is left");
        assert_eq!(rule(&mut auto, &all), "elastic-bsp");
    }

    #[test]
    fn where_workers_cannot_step_by_themselves_it_does_not_let_them_however_long_transfers_take() {
        let mut auto = Auto::new(ElasticOptions::default(), BalanceOptions::default());
        let workers = workers(&[10.0, 10.0], 0.01, 0.97);
        let mut choose = |local_rounds| {
            let context = Context { batch: 32, workers: &workers, local_rounds };
            let opening = auto.open(&context);
            (opening.why.rule, opening.aggregation == Aggregation::PerBarrier)
        };
        assert_eq!(choose(false), ("bsp".to_owned(), true));
        assert_eq!(choose(true).0, "local-sgd");
        assert_eq!(choose(false), ("bsp".to_owned(), true));
    }

    #[test]
    fn an_averaged_round_takes_as_many_times_the_rate_as_its_workers_take_batches() {
        #[rustfmt::skip]
        let cases: &[(&str, &[Option<u32>], f32)] = &[
            ("all take whole batches",    &[None; 4],                              4.0),
            ("limits beyond the batch",   &[Some(64), None],                       2.0),
            ("three have little memory",  &[None, Some(8), Some(8), Some(8)],      1.75),
            ("nobody takes a whole one",  &[Some(16), Some(8)],                    0.75),
            ("two take half of one each", &[Some(16), Some(16)],                   1.0),
        ];
        for (name, limits, factor) in cases {
            let mut workers = workers(&vec![10.0; limits.len()], 0.0, 0.0);
            workers.iter_mut().zip(*limits).for_each(|(pace, limit)| pace.max_batch = *limit);
            let mut auto = Auto::new(ElasticOptions::default(), BalanceOptions::default());
            let opening = auto.open(&Context { batch: 32, workers: &workers, local_rounds: true });
            assert_eq!(
                (opening.aggregation, opening.rate_factor, opening.scales_with_samples),
                (Aggregation::PerBarrier, *factor, true),
                "{name}"
            );
        }
    }
}
