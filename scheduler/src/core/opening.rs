//! Opening a superstep: the policy says how it will end and how much each worker takes.

use std::collections::BTreeMap;

use super::{
    job::Job,
    member::Member,
    superstep::{RosterEntry, SuperstepState},
    turn::Turn,
};
use crate::{
    balance::{Cost, CurveFit, MAX_FIXED_SHARE},
    ids::{Incarnation, Superstep},
    sync::{Aggregation, Context, EndRule, SpeedEstimate},
};

/// A smaller part of the time of an iteration is not told from jitter.
const LEAST_FIXED_SHARE: f64 = 0.1;
/// A worker whose batch is this many times smaller than usual, and of which it is not known what larger ones
/// take, is tried with one.
const STARVED: f64 = 4.0;

/// What speeds are taken from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpeedBasis {
    /// The means of what was measured: where a superstep opens ahead of what is reported.
    Means,
    /// What is predicted of the next iteration.
    Predicted,
}

impl Job {
    /// Opens the next superstep for everybody who takes part.
    pub(super) fn open_superstep(&mut self, turn: &mut Turn<'_>) {
        let superstep = self.state.next_superstep;
        self.state.next_superstep = Superstep(superstep.0 + 1);
        let workers: Vec<Incarnation> = self.active().collect();
        let begins_us = self.begins_unwatched_us(superstep, turn.now_us);
        let ahead = begins_us.is_some() || self.opens_rounds_ahead();
        let basis = if ahead { SpeedBasis::Means } else { SpeedBasis::Predicted };
        let estimates = self.speed_estimates(&workers, basis);
        let batch = self.train().batch;
        let local_rounds = !self.train().model.layout.has_tables();
        let context = Context { batch, workers: &estimates, local_rounds };
        let mut rules = self.state.policy.as_dyn_mut().open(&context);
        if rules.why.rule.is_empty() {
            rules.why.rule = self.train().policy.to_string();
        }
        let ending = rules.ending;
        let mut roster = BTreeMap::new();
        for worker in &workers {
            let wanted = rules.batches.as_ref().and_then(|batches| batches.get(worker)).copied();
            let fitting = self.members[worker].fitting(self.train());
            let member = self.member_mut(*worker);
            member.batch = wanted.map_or(fitting, |size| size.max(1));
            let (base, batch) = (member.planned, member.batch);
            roster.insert(*worker, RosterEntry::new(base, batch));
        }
        let balanced = rules.batches.is_some() || roster.values().any(|entry| entry.batch != batch);
        let learning_rate = match rules.aggregation {
            Aggregation::LocalOuter { learning_rate } => learning_rate,
            _ => self.learning_rate() * rules.rate_factor,
        };
        let mut record = SuperstepState::open(rules, roster, turn.now_us);
        (record.balanced, record.learning_rate) = (balanced, learning_rate);
        record.begins_at = Some(self.state.cursor.handed_out());
        self.supersteps.insert(superstep, record);
        workers.iter().for_each(|worker| self.begin_progress(*worker, superstep));
        self.changes.job_state = true;
        self.changes.supersteps.insert(superstep);
        match (ending, begins_us) {
            (EndRule::Quota(quota), _) => self.order_quota(superstep, &workers, quota, turn),
            (EndRule::Monitor { .. }, Some(begins_us)) => {
                self.plan_unwatched(superstep, begins_us, turn);
            }
            (EndRule::Monitor { .. } | EndRule::Free, _) => {}
        }
    }

    /// How fast everybody is.
    fn speed_estimates(&self, workers: &[Incarnation], basis: SpeedBasis) -> Vec<SpeedEstimate> {
        let estimate = |w: &Incarnation| {
            let member = &self.members[w];
            let samples = f64::from(member.interval_samples.max(1));
            // A single short step says little, and what it says would hold for all that opens ahead.
            let mean = || {
                let of_batch = member.curve.as_ref().and_then(CurveFit::newest);
                let of_all = || Some((samples, member.speed.mean_us_per_sample()?));
                of_batch.map(|(batch, us)| (batch, us / batch)).or_else(of_all)
            };
            let newest = || Some((samples, 1e6 / member.speed.samples_per_s()?));
            let seen = if basis == SpeedBasis::Means { mean().or_else(newest) } else { newest() };
            let max_batch = self.train().batch_limit(member.about.max_batch);
            member.speed_estimate(*w, self.train().batch, max_batch, seen)
        };
        workers.iter().map(estimate).collect()
    }

    /// Hands out as many iterations to everybody, and orders the barrier behind them.
    fn order_quota(
        &mut self,
        superstep: Superstep,
        workers: &[Incarnation],
        quota: u32,
        turn: &mut Turn<'_>,
    ) {
        let wanted: Vec<_> = workers.iter().map(|w| (*w, u64::from(quota))).collect();
        self.predict_quota(superstep, quota);
        self.reserve(superstep, &wanted);
        self.order_barrier(superstep, turn);
    }
}

impl Member {
    /// What an iteration of any batch takes, as one of so many samples takes so many µs for each. Of the part
    /// that is the same for any batch, such as a pull and a push, a smaller batch is not relieved: shares
    /// in proportion to speed would make a worker that was slow once ever slower.
    fn predicted_cost(&self, (samples, us_per_sample): (f64, f64), usual_batch: u32) -> Cost {
        let share = match self.curve.as_ref().and_then(|curve| curve.fixed_share(samples)) {
            Some(share) => share,
            // Rounded to whole samples no small change would ever show what more of them take.
            None if samples * STARVED <= f64::from(usual_batch) => MAX_FIXED_SHARE,
            None => 0.0,
        };
        let share = share.max(self.step_times.share().unwrap_or(0.0));
        if share < LEAST_FIXED_SHARE {
            return Cost::Proportional { us_per_sample };
        }
        let fixed_us = us_per_sample * samples * share;
        Cost::Curve { flat_us: 0.0, fixed_us, us_per_sample: us_per_sample * (1.0 - share) }
    }

    fn speed_estimate(
        &self,
        worker: Incarnation,
        usual_batch: u32,
        max_batch: Option<u32>,
        seen: Option<(f64, f64)>,
    ) -> SpeedEstimate {
        let proportional = seen.map(|seen| self.predicted_cost(seen, usual_batch));
        SpeedEstimate {
            worker,
            batch: self.batch,
            last: (self.interval_samples > 0).then_some((self.interval_samples, self.interval_us)),
            jitter: self.speed.jitter(),
            communication: self.step_times.share(),
            proportional,
            fitted: self.curve.as_ref().and_then(|c| c.cost()).or(proportional),
            max_batch,
        }
    }
}
