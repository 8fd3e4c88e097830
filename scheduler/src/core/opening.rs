//! Opening a superstep: the policy says how it will end and how much each worker takes.

use std::collections::BTreeMap;

use super::{
    effects::Effect,
    job::Job,
    member::Member,
    superstep::{RosterEntry, SuperstepPhase, SuperstepState},
};
use crate::{
    balance::Cost,
    ids::{Incarnation, Superstep},
    sync::{Aggregation, Context, EndRule, SpeedEstimate, SuperstepRules},
};

impl Job {
    /// Opens the next superstep for everybody who takes part.
    pub(super) fn open_superstep(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let superstep = self.state.next_superstep;
        self.state.next_superstep = Superstep(superstep.0 + 1);
        let workers: Vec<Incarnation> = self.active().collect();
        let begins_us = self.begins_unwatched_us(superstep, now_us);
        let estimates = self.speed_estimates(&workers, begins_us.is_some());
        let batch = self.train().batch;
        let local_rounds = !self.train().model.layout.has_tables();
        let context = Context { batch, workers: &estimates, local_rounds };
        let opening = self.state.policy.as_dyn_mut().open(&context);
        let SuperstepRules { ending, aggregation, batches, rate_factor, max_lead, mut why } = opening;
        if why.rule.is_empty() {
            why.rule = self.train().policy.to_string();
        }
        let sizes: BTreeMap<Incarnation, u32> = workers
            .iter()
            .map(|w| {
                let wanted = batches.as_ref().and_then(|b| b.get(w)).copied();
                (*w, wanted.map_or_else(|| self.members[w].fitting(batch), |size| size.max(1)))
            })
            .collect();
        let size = |w: &Incarnation| sizes[w];
        let balanced = batches.is_some() || sizes.values().any(|size| *size != batch);
        for worker in &workers {
            self.member_mut(*worker).batch = size(worker);
        }
        let roster = workers.iter().map(|w| {
            let base = self.members[w].planned;
            (*w, RosterEntry { base, last: None, batch: size(w), arrived_us: None })
        });
        let record = SuperstepState {
            phase: SuperstepPhase::Open(ending),
            roster: roster.collect(),
            revision: 0,
            pin: false,
            rate_factor,
            learning_rate: match aggregation {
                Aggregation::LocalOuter { learning_rate } => learning_rate,
                _ => self.learning_rate() * rate_factor,
            },
            aggregation,
            balanced,
            max_lead,
            opened_us: now_us,
            unobserved: match ending {
                EndRule::Monitor { .. } => workers.iter().copied().collect(),
                EndRule::Quota(_) | EndRule::Free => Default::default(),
            },
            progress: Default::default(),
            unreported: Default::default(),
            why,
            closed_by: Default::default(),
            predicted: Vec::new(),
            alternatives: Vec::new(),
            span_us: None,
            predicted_wait_us: None,
            sync_at_us: None,
        };
        self.supersteps.insert(superstep, record);
        workers.iter().for_each(|worker| self.begin_progress(*worker, superstep));
        self.changes.job_state = true;
        self.changes.supersteps.insert(superstep);
        match (ending, begins_us) {
            (EndRule::Quota(quota), _) => self.order_quota(superstep, &workers, quota, now_us, effects),
            (EndRule::Monitor { .. }, Some(begins_us)) => {
                self.plan_unwatched(superstep, begins_us, now_us, effects);
            }
            (EndRule::Monitor { .. } | EndRule::Free, _) => {}
        }
    }

    /// How fast everybody is: by their means where a superstep opens ahead of what is reported, else as predicted.
    fn speed_estimates(&self, workers: &[Incarnation], ahead: bool) -> Vec<SpeedEstimate> {
        let estimate = |w: &Incarnation| {
            let member = &self.members[w];
            // A single short step says little, and what it says would hold for all that opens ahead.
            let mean_us = member.speed.mean_us_per_sample().filter(|_| ahead);
            let predicted_us = || member.speed.samples_per_s().map(|speed| 1e6 / speed);
            member.speed_estimate(*w, mean_us.or_else(predicted_us))
        };
        workers.iter().map(estimate).collect()
    }

    /// Hands out as many iterations to everybody, and orders the barrier behind them.
    fn order_quota(
        &mut self,
        superstep: Superstep,
        workers: &[Incarnation],
        quota: u32,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        let wanted: Vec<_> = workers.iter().map(|w| (*w, u64::from(quota))).collect();
        let predicted_wait_us = self.quota_wait(superstep, quota);
        self.superstep_mut(superstep).predicted_wait_us = predicted_wait_us;
        self.reserve(superstep, &wanted);
        self.order_barrier(superstep, now_us, effects);
    }
}

impl Member {
    fn speed_estimate(&self, worker: Incarnation, us_per_sample: Option<f64>) -> SpeedEstimate {
        let proportional = us_per_sample.map(|us_per_sample| Cost::Proportional { us_per_sample });
        SpeedEstimate {
            worker,
            batch: self.batch,
            last: (self.interval_samples > 0).then_some((self.interval_samples, self.interval_us)),
            jitter: self.speed.jitter(),
            communication: self.step_times.share(),
            proportional,
            fitted: self.curve.as_ref().and_then(|c| c.cost()).or(proportional),
            max_batch: self.about.max_batch,
        }
    }
}
