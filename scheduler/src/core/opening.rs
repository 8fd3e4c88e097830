//! Opening a superstep: the policy says how it will end and how much each worker takes.

use super::{
    io::Effect,
    job::Job,
    state::{End, Member, Share, Span},
};
use crate::{
    balance::Cost,
    ids::{Incarnation, Superstep},
    sync::{Context, Ending, Opening, Pace, Rounds},
};

impl Job {
    /// Opens the next superstep for everybody who takes part.
    pub(super) fn open_superstep(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        let superstep = self.central.next_superstep;
        self.central.next_superstep = Superstep(superstep.0 + 1);
        let workers: Vec<Incarnation> = self.active().collect();
        let crew: Vec<Pace> = workers.iter().map(|w| self.members[w].pace(*w)).collect();
        let batch = self.train().batch;
        let opening = self.central.policy.as_dyn_mut().open(&Context { batch, crew: &crew });
        let Opening { ending, rounds, batches, rate_factor, max_lead, mut why } = opening;
        if why.rule.is_empty() {
            why.rule = self.train().policy.to_string();
        }
        let size = |w: &Incarnation| batches.as_ref().and_then(|b| b.get(w)).copied().unwrap_or(batch).max(1);
        for worker in &workers {
            self.member(*worker).batch = size(worker);
        }
        let roster = workers.iter().map(|w| {
            let base = self.members[w].planned;
            (*w, Share { base, last: None, batch: size(w), arrived_us: None })
        });
        let span = Span {
            end: End::Open(ending),
            roster: roster.collect(),
            revision: 0,
            pin: false,
            rate_factor,
            learning_rate: match rounds {
                Rounds::LocalOuter { learning_rate } => learning_rate,
                _ => self.learning_rate() * rate_factor,
            },
            rounds,
            balanced: batches.is_some(),
            max_lead,
            opened_us: now_us,
            unseen: match ending {
                Ending::Monitor { .. } => workers.iter().copied().collect(),
                Ending::Quota(_) | Ending::Free => Default::default(),
            },
            why,
            closed_by: Default::default(),
            predicted: Vec::new(),
            weighed: Vec::new(),
            span_us: None,
            predicted_wait_us: None,
            sync_at_us: None,
        };
        self.spans.insert(superstep, span);
        self.touched.central = true;
        self.touched.spans.insert(superstep);
        if let Ending::Quota(quota) = ending {
            let wanted: Vec<_> = workers.iter().map(|w| (*w, u64::from(quota))).collect();
            let predicted_wait_us = self.quota_wait(superstep, quota);
            self.span(superstep).predicted_wait_us = predicted_wait_us;
            self.reserve(superstep, &wanted);
            self.order(superstep, now_us, fx);
        }
    }
}

impl Member {
    fn pace(&self, worker: Incarnation) -> Pace {
        let us_per_sample = self.speed.samples_per_s().map(|speed| 1e6 / speed);
        let proportional = us_per_sample.map(|us_per_sample| Cost::Proportional { us_per_sample });
        Pace {
            worker,
            batch: self.batch,
            last: (self.interval_samples > 0).then_some((self.interval_samples, self.interval_us)),
            jitter: self.speed.jitter(),
            communication: self.transfer.share(),
            proportional,
            fitted: self.curve.as_ref().and_then(|c| c.cost()).or(proportional),
            max_batch: self.about.max_batch,
        }
    }
}
