//! Supersteps on the virtual clock: how they open, are planned, planned again, and close.

use std::cmp::Reverse;

use super::{
    run::{Run, SuperstepState, What},
    worker::{Doing, Worker},
};
use crate::{
    ids::Incarnation,
    sync::{Aggregation, Context, EndRule, SuperstepRules, WorkerProgress, plan, remaining_rows},
};

impl Run<'_> {
    pub(super) fn enlist(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        (worker.listed, worker.done, worker.quota) = (true, 0, None);
        self.span.missing += 1;
        self.span.unseen += usize::from(self.span.monitor.is_some());
    }

    /// Opens a superstep for everybody who is there.
    pub(super) fn open(&mut self) {
        self.estimates.clear();
        self.estimates.extend(self.workers.iter().filter(|w| w.is_present()).map(Worker::speed_estimate));
        let context = Context { batch: self.scenario.batch, workers: &self.estimates };
        let SuperstepRules { ending, aggregation: rounds, batches, max_lead, why, .. } =
            self.policy.as_dyn_mut().open(&context);
        let rule = if why.rule.is_empty() { self.scenario.policy.name() } else { &why.rule };
        *self.out.rules.entry(rule.to_owned()).or_default() += 1;
        self.span = SuperstepState {
            rounds,
            monitor: match ending {
                EndRule::Monitor { pushes } => Some(pushes),
                EndRule::Quota(_) | EndRule::Free => None,
            },
            max_lead,
            unseen: 0,
            missing: 0,
            decided: matches!(ending, EndRule::Quota(_)),
            planned: false,
            opened_us: self.now_us,
        };
        for index in 0..self.workers.len() {
            if !self.workers[index].is_present() {
                continue;
            }
            self.enlist(index);
            let worker = &mut self.workers[index];
            let size = batches.as_ref().and_then(|b| b.get(&worker.id)).copied();
            worker.batch = size.unwrap_or(self.scenario.batch).max(1);
            if let EndRule::Quota(quota) = ending {
                worker.quota = Some(quota.into());
            }
            if ending != EndRule::Free {
                // The lead is counted from the barrier.
                self.clocks.leave(worker.id);
            }
        }
        if ending != EndRule::Free {
            for worker in self.workers.iter().filter(|w| w.is_present()) {
                self.clocks.join(worker.id, Some(Default::default()));
            }
        }
        self.start_waiting();
    }

    pub(super) fn close(&mut self) {
        self.out.barriers += 1;
        self.superstep_us += self.now_us - self.span.opened_us;
        self.out.timeline.barrier(self.now_us);
        if self.span.rounds != Aggregation::PerPush {
            self.updates += 1;
        }
        if self.workers.iter().any(Worker::is_present) {
            self.open();
        }
    }

    /// A planned worker with iterations beyond this one is looked at when it should be long done.
    pub(super) fn watch_overrun(&mut self, index: usize) {
        let Some(factor) = self.policy.as_dyn().overrun_factor().filter(|_| self.span.planned) else {
            return;
        };
        let worker = &self.workers[index];
        // What a closed gate held back was not late.
        if worker.quota.is_some_and(|quota| worker.done + 1 < quota)
            && let Doing::Computing(began_us) = worker.doing
            && let Some(predicted_us) = worker.speed.interval_us(worker.batch)
        {
            let at_us = began_us + (predicted_us as f64 * factor) as u64 + 1;
            let seq = worker.granted();
            self.events.push(Reverse((at_us.max(self.now_us + 1), What::Overrun { seq }, index)));
        }
    }

    pub(super) fn look(&mut self) {
        self.seen.clear();
        for w in self.workers.iter().filter(|w| w.listed) {
            self.seen.push(WorkerProgress {
                worker: w.id,
                finished: w.finished,
                granted: w.granted(),
                in_superstep: w.done,
                last_end_us: w.last_end_us,
                interval_us: w.speed.interval_us(w.batch).unwrap_or(1),
            });
        }
    }

    /// Plans the monitored superstep; whether it is over at once.
    pub(super) fn plan(&mut self) -> bool {
        self.look();
        if self.seen.len() < 2 {
            return false;
        }
        let policy = self.policy.as_dyn();
        let rows = policy.rows(self.now_us, &self.seen);
        let Some(plan) = plan(&rows, policy.search_options()) else { return false };
        (self.span.decided, self.span.planned) = (true, true);
        self.span.missing = 0;
        for w in self.workers.iter_mut().filter(|w| w.listed) {
            let last = plan.last.get(&w.id).copied().unwrap_or(w.finished).max(w.granted());
            w.quota = Some(last - (w.finished - w.done));
            self.span.missing += usize::from(w.quota > Some(w.done));
        }
        if self.span.missing == 0 {
            self.close();
            return true;
        }
        self.start_waiting();
        for index in 0..self.workers.len() {
            if matches!(self.workers[index].doing, Doing::Computing(_)) {
                self.watch_overrun(index);
            }
        }
        true
    }

    /// The worker takes much longer than was planned: the others need not wait for what it has not begun.
    pub(super) fn overrun(&mut self, index: usize) {
        let Doing::Computing(began_us) = self.workers[index].doing else { return };
        if !self.span.planned || !self.workers[index].listed {
            return;
        }
        self.look();
        let last = |w: Incarnation| {
            let worker = &self.workers[w.0 as usize - 1];
            Some(worker.finished - worker.done + worker.quota?)
        };
        let late = [(self.workers[index].id, self.now_us - began_us)].into();
        let policy = self.policy.as_dyn();
        let rows = remaining_rows(policy, self.now_us, &mut self.seen, &late, last);
        let Some(plan) = plan(&rows, policy.search_options()) else { return };
        let mut shortened = false;
        for w in self.workers.iter_mut().filter(|w| w.listed) {
            let base = w.finished - w.done;
            let wanted = plan.last.get(&w.id).copied().unwrap_or(0).max(w.granted()) - base;
            if w.quota.is_some_and(|quota| wanted < quota) {
                self.span.missing -= usize::from(w.quota > Some(w.done) && wanted <= w.done);
                w.quota = Some(wanted);
                shortened = true;
            }
        }
        self.out.replanned += u64::from(shortened);
        if self.span.missing == 0 {
            self.close();
        }
    }
}
