//! Barriers that shards have closed, and how long each worker waited there.
//!
//! A worker reports its last iteration of a superstep before or after the shards tell of the barrier: both
//! gather what they have to say where steps are short, and the worker may be several supersteps further by
//! then.

use super::{
    job::Job,
    member::Membership,
    shard_protocol::ClosedBarrier,
    superstep::{RosterEntry, SuperstepPhase, SuperstepState},
};
use crate::{
    graph::{TaskEvent, TaskId},
    ids::{Incarnation, ShardIndex, Superstep},
};

impl Job {
    /// A worker has reported an iteration that ended at `end_us`.
    pub(super) fn arrived(&mut self, worker: Incarnation, superstep: Superstep, seq: u64, end_us: u64) {
        let Some(record) = self.supersteps.get_mut(&superstep) else { return };
        let is_closed = record.is_closed();
        let entry = record.roster.get_mut(&worker).filter(|entry| entry.last == Some(seq));
        let Some(entry) = entry else { return };
        if !is_closed {
            self.member_mut(worker).arrivals_us.insert(superstep, end_us);
        } else if record.unreported.remove(&worker) {
            entry.arrived_us = Some(end_us);
            self.changes.supersteps.insert(superstep);
            self.record_if_all_reported(superstep);
        }
    }

    /// The ends of a superstep are known now: some workers may be there already.
    pub(super) fn note_arrivals(&mut self, superstep: Superstep) {
        let arrived = |(worker, entry): (&Incarnation, &RosterEntry)| {
            let member = self.members.get(worker)?;
            let is_there = entry.last == Some(member.finished) && member.finished > entry.base;
            is_there.then_some((*worker, member.last_end_us))
        };
        let arrived: Vec<_> = self.supersteps[&superstep].roster.iter().filter_map(arrived).collect();
        for (worker, end_us) in arrived {
            self.member_mut(worker).arrivals_us.insert(superstep, end_us);
        }
    }

    /// A shard has closed a barrier that was ordered, and all before it.
    pub(super) fn note_closed(&mut self, shard: ShardIndex, barrier: ClosedBarrier, now_us: u64) {
        let ClosedBarrier { superstep: newest, closed_ago_us, pushes } = barrier;
        let at_us = now_us.saturating_sub(closed_ago_us);
        let open: Vec<Superstep> = self
            .supersteps
            .iter()
            .filter(|(n, s)| **n <= newest && s.phase == SuperstepPhase::Ordered)
            .map(|(n, _)| *n)
            .collect();
        for superstep in open {
            self.superstep_mut(superstep).closed_by.insert(shard, pushes);
            if self.supersteps[&superstep].closed_by.len() as u64 >= u64::from(self.state.shards) {
                self.close_superstep(superstep, at_us, now_us);
            }
        }
    }

    fn close_superstep(&mut self, superstep: Superstep, at_us: u64, now_us: u64) {
        let Self { supersteps, members, changes, .. } = self;
        let Some(record) = supersteps.get_mut(&superstep) else { return };
        for (worker, entry) in &mut record.roster {
            let Some(member) = members.get_mut(worker) else { continue };
            entry.arrived_us = member.arrivals_us.remove(&superstep);
            match entry.arrived_us {
                Some(_) => {
                    changes.members.insert(*worker);
                }
                None if entry.has_part() && member.membership == Membership::Active => {
                    record.unreported.insert(*worker);
                }
                None => {}
            }
        }
        let predicted_wait_us = record.predicted_wait_us;
        self.superstep_mut(superstep).phase = SuperstepPhase::Closed { closed_us: at_us, actual_wait_us: 0 };
        self.state.closed = self.state.closed.max(superstep.0 + 1);
        let counters = &mut self.state.counters;
        counters.barriers += 1;
        counters.predicted_wait_us += predicted_wait_us.unwrap_or(0);
        let id = TaskId::Barrier(superstep);
        let attempt = self.tasks.get(&id).map_or(1, |t| t.attempts);
        self.apply(&id, &TaskEvent::Finished { attempt }, now_us);
        self.record_if_all_reported(superstep);
    }

    fn record_if_all_reported(&mut self, superstep: Superstep) {
        if self.supersteps.get(&superstep).is_some_and(|record| record.unreported.is_empty()) {
            self.record_barrier(superstep);
        }
    }

    /// Counts how long everybody waited at a barrier that has just closed, or of which nothing more will be
    /// heard, and says so.
    fn record_barrier(&mut self, superstep: Superstep) {
        let Some(record) = self.supersteps.get_mut(&superstep) else { return };
        let Some(met_us) = record.met_us() else { return };
        let SuperstepPhase::Closed { closed_us, actual_wait_us } = &mut record.phase else { return };
        let (mut least, mut most) = (u64::MAX, 0);
        for entry in record.roster.values() {
            let done = entry.iterations();
            (least, most) = (least.min(done), most.max(done));
            *actual_wait_us += entry.arrived_us.map_or(0, |at_us| met_us.saturating_sub(at_us));
        }
        let wait_us = *actual_wait_us;
        let fields = vec![
            ("barrier", superstep.to_string()),
            ("at_ms", (*closed_us / 1000).to_string()),
            ("rule", record.why.rule.clone()),
            ("workers", record.roster.len().to_string()),
            ("iterations_least", least.min(most).to_string()),
            ("iterations_most", most.to_string()),
            ("predicted_wait_us", record.predicted_wait_us.map(|us| us.to_string()).unwrap_or_default()),
            ("actual_wait_us", wait_us.to_string()),
        ];
        self.state.counters.actual_wait_us += wait_us;
        self.changes.job_state = true;
        self.changes.supersteps.insert(superstep);
        self.changes.barriers.push(fields);
    }

    /// Does not wait any longer for those who have not reported when they came to a barrier.
    pub(super) fn record_unreported(&mut self, superstep: Superstep) {
        let Some(record) = self.supersteps.get_mut(&superstep) else { return };
        if !std::mem::take(&mut record.unreported).is_empty() {
            self.record_barrier(superstep);
        }
    }

    /// A worker has left: nobody hears any more when it came to a barrier.
    pub(super) fn expect_no_report_of(&mut self, worker: Incarnation) {
        let removed =
            |(n, record): (&Superstep, &mut SuperstepState)| record.unreported.remove(&worker).then_some(*n);
        let late: Vec<Superstep> = self.supersteps.iter_mut().filter_map(removed).collect();
        for superstep in late {
            self.changes.supersteps.insert(superstep);
            self.record_if_all_reported(superstep);
        }
    }

    /// No more reports are to come.
    pub(super) fn record_all_barriers(&mut self) {
        let closed: Vec<Superstep> = self.supersteps.keys().copied().collect();
        closed.into_iter().for_each(|superstep| self.record_unreported(superstep));
    }
}
