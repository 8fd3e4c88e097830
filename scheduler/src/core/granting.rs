//! Granting iterations: who may start what, and how far ahead.
//!
//! While a superstep's end is unknown a worker gets few iterations beyond its last finished one, because a plan can
//! only name iterations that are granted already or later. Once the end is known they are granted in longer runs,
//! so that no worker waits for the engine.

use super::{
    io::Effect,
    job::Job,
    state::{End, Share, Span, Standing, Task, TaskBody},
};
use crate::{
    graph::{Holder, TaskEvent, TaskId},
    ids::{Incarnation, Superstep},
    samples::SampleRange,
    sync::Opening,
};

/// A step shorter than this is shorter than a control round trip with some noise.
const SHORT_STEP_US: u64 = 5_000;
/// Work that a worker has in hand when nothing forbids it.
const PIPELINE_US: u64 = 40_000;
const PIPELINE_MAX: u64 = 32;

/// Where a worker's next iteration belongs.
enum Slot {
    In {
        superstep: Superstep,
        ahead: u64,
    },
    /// Every superstep with room is over for this worker: a new one must open.
    New,
    /// Nothing to do for it now.
    Nothing,
}

impl Job {
    /// Grants whatever may be granted to the workers for whom something has changed.
    pub(super) fn grant(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        loop {
            if std::mem::take(&mut self.due.everybody) {
                self.due.workers = self.active().collect();
            }
            let Some(worker) = self.due.workers.pop_first() else { return };
            if self.members.get(&worker).is_some_and(|m| m.standing == Standing::Active) {
                self.grant_to(worker, now_us, fx);
            }
        }
    }

    fn grant_to(&mut self, worker: Incarnation, now_us: u64, fx: &mut Vec<Effect>) {
        loop {
            let outstanding = self.members[&worker].outstanding();
            match self.slot(worker) {
                Slot::In { superstep, ahead } if outstanding < ahead => {
                    if !self.grant_one(worker, superstep, now_us, fx) {
                        return;
                    }
                }
                Slot::New if outstanding < self.ahead(worker) => self.open_superstep(now_us, fx),
                _ => return,
            }
        }
    }

    fn slot(&self, worker: Incarnation) -> Slot {
        let member = &self.members[&worker];
        for (&superstep, span) in self.spans.iter().filter(|(_, s)| !s.is_closed()) {
            let current = superstep.0 == self.central.closed;
            match (span.roster.get(&worker), &span.end) {
                (Some(_), End::Planning(_)) => return Slot::Nothing,
                (Some(Share { last: Some(last), .. }), _) if member.granted < *last => {
                    let ahead = if current { self.pipeline(worker) } else { self.ahead(worker) };
                    return Slot::In { superstep, ahead };
                }
                (Some(Share { last: Some(_), .. }), _) => {}
                (_, End::Open(_)) if self.central.cursor.is_exhausted() => return Slot::Nothing,
                (_, End::Open(Opening::Free)) => return Slot::In { superstep, ahead: self.pipeline(worker) },
                (_, End::Open(_)) => return Slot::In { superstep, ahead: self.ahead(worker) },
                (None, _) => {}
                (Some(Share { last: None, .. }), _) => return Slot::Nothing,
            }
        }
        if self.central.cursor.is_exhausted() { Slot::Nothing } else { Slot::New }
    }

    /// Iterations granted beyond the last finished one while no plan exists.
    fn ahead(&self, worker: Incarnation) -> u64 {
        let interval_us = self.members[&worker].interval_us;
        let default = if (1..SHORT_STEP_US).contains(&interval_us) { 2 } else { 1 };
        self.train().ahead.map_or(default, u64::from)
    }

    /// The same where the end is known, or known never to come.
    fn pipeline(&self, worker: Incarnation) -> u64 {
        let interval_us = self.members[&worker].interval_us;
        let run = PIPELINE_US.checked_div(interval_us).map_or(1, |n| n.clamp(2, PIPELINE_MAX));
        run.max(self.ahead(worker))
    }

    /// Leases one iteration; `false` if no samples are left for it.
    fn grant_one(
        &mut self,
        worker: Incarnation,
        superstep: Superstep,
        now_us: u64,
        fx: &mut Vec<Effect>,
    ) -> bool {
        let batch = self.train().batch;
        let member = self.member(worker);
        let reserved = member.take_reserved(batch);
        let Some(range) = reserved.or_else(|| self.central.cursor.take(batch)) else { return false };
        let learning_rate = self.learning_rate();
        let member = self.member(worker);
        let base = member.granted;
        member.granted += 1;
        member.planned = member.planned.max(member.granted);
        let seq = member.granted;
        if !self.spans[&superstep].roster.contains_key(&worker) {
            self.span(superstep).roster.insert(worker, Share { base, last: None });
        }

        let id = TaskId::Iteration { worker, seq };
        let mut task = Task::new(TaskBody::Iteration { superstep, range, learning_rate }, 0, now_us);
        if superstep.0 > 0 {
            task.version.push(TaskId::Barrier(Superstep(superstep.0 - 1)));
        }
        self.tasks.insert(id.clone(), task);
        self.apply(&id, &TaskEvent::Leased { holder: Holder::Worker(worker) }, now_us);
        if let Some(assignment) = self.assignment(&id) {
            fx.push(Effect::Assign { worker, assignment });
        }
        true
    }

    pub(super) fn learning_rate(&self) -> f32 {
        let train = self.train();
        train.learning_rate.at(self.central.cursor.handed_out(), train.total_samples())
    }

    fn open_superstep(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        let superstep = self.central.next_superstep;
        self.central.next_superstep = Superstep(superstep.0 + 1);
        let workers: Vec<_> = self.active().collect();
        let opening = self.central.policy.as_dyn().open(workers.len());
        let learning_rate = self.learning_rate();
        let roster = workers.iter().map(|w| {
            let base = self.members[w].planned;
            (*w, Share { base, last: None })
        });
        let span = Span {
            end: End::Open(opening),
            roster: roster.collect(),
            revision: 0,
            pin: false,
            learning_rate,
            opened_us: now_us,
            closed_by: Default::default(),
            predicted: Vec::new(),
            predicted_wait_us: None,
            sync_at_us: None,
        };
        self.spans.insert(superstep, span);
        self.touched.central = true;
        self.touched.spans.insert(superstep);
        if let Opening::Quota(quota) = opening {
            let wanted: Vec<_> = workers.iter().map(|w| (*w, u64::from(quota))).collect();
            let predicted_wait_us = self.quota_wait(&workers, quota);
            self.span(superstep).predicted_wait_us = predicted_wait_us;
            self.reserve(superstep, &wanted);
            self.order(superstep, now_us, fx);
        }
    }

    /// Predicted wait when everybody does `quota` iterations: known once every speed is.
    fn quota_wait(&self, workers: &[Incarnation], quota: u32) -> Option<u64> {
        let each: Vec<u64> = workers.iter().map(|w| self.members[w].interval_us * u64::from(quota)).collect();
        let slowest = *each.iter().max()?;
        each.iter().all(|&us| us > 0).then(|| each.iter().map(|us| slowest - us).sum())
    }

    /// Sets samples aside for `wanted` further iterations of each worker of a superstep, and thereby fixes its last
    /// one. When samples run short everybody gets its share of what is left.
    pub(super) fn reserve(&mut self, superstep: Superstep, wanted: &[(Incarnation, u64)]) {
        let batch = self.train().batch;
        let need: u64 = wanted.iter().map(|(_, n)| n).sum();
        let have = self.central.cursor.remaining().div_ceil(u64::from(batch));
        let share = |n: u64| if need > have { n * have / need } else { n };
        // What rounding down leaves goes out one by one.
        let mut spare = need.min(have) - wanted.iter().map(|(_, n)| share(*n)).sum::<u64>();
        for &(worker, n) in wanted {
            let extra = spare.min(n - share(n)).min(1);
            spare -= extra;
            let iterations = share(n) + extra;
            let mut got = 0;
            while got < iterations {
                let len = (iterations - got).saturating_mul(u64::from(batch)).min(u64::from(u32::MAX)) as u32;
                let Some(range) = self.central.cursor.take(len) else { break };
                got += u64::from(range.len.div_ceil(batch));
                self.member(worker).reserved.push_back(range);
            }
            let member = self.member(worker);
            member.planned += got;
            let last = member.planned;
            if let Some(share) = self.span(superstep).roster.get_mut(&worker) {
                share.last = Some(last);
            }
        }
    }

    /// Ends an open superstep at what is granted once no samples are left to grant.
    pub(super) fn end_when_exhausted(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        if !self.central.cursor.is_exhausted() {
            return;
        }
        let open = self.spans.iter().find(|(_, s)| s.is_open()).map(|(n, _)| *n);
        if let Some(superstep) = open {
            let granted: Vec<_> = self.spans[&superstep].roster.keys().map(|w| (*w, 0)).collect();
            self.reserve(superstep, &granted);
            self.order(superstep, now_us, fx);
        }
    }
}

impl super::state::Member {
    /// Iterations leased and not over.
    pub(super) fn outstanding(&self) -> u64 {
        self.granted - self.finished
    }

    fn take_reserved(&mut self, batch: u32) -> Option<SampleRange> {
        let front = self.reserved.front_mut()?;
        let taken = SampleRange { len: front.len.min(batch), ..*front };
        front.start += u64::from(taken.len);
        front.len -= taken.len;
        if front.len == 0 {
            self.reserved.pop_front();
        }
        Some(taken)
    }
}
