//! Barriers: planned, leased to the shards in advance, amended when somebody leaves, closed by the shards.

use std::collections::BTreeMap;

use super::{
    io::{Barrier, Effect, ShardStand},
    job::Job,
    state::{End, Task, TaskBody},
};
use crate::{
    graph::{Holder, TaskEvent, TaskId},
    ids::{Incarnation, ShardIndex, Superstep},
    sync::{Plan, PlanRequest, RoundRule, Seen},
};

impl Job {
    /// Leases the barrier of a superstep to every shard. Every share has its last iteration by now.
    pub(super) fn order(&mut self, superstep: Superstep, now_us: u64, fx: &mut Vec<Effect>) {
        let pin = self.central.cursor.is_exhausted();
        let span = self.span(superstep);
        span.end = End::Ordered;
        span.revision += 1;
        span.pin |= pin;
        let id = TaskId::Barrier(superstep);
        let mut task = Task::new(TaskBody::Barrier, 0, now_us);
        task.version = span.iterations();
        self.tasks.insert(id.clone(), task);
        self.apply(&id, &TaskEvent::Leased { holder: Holder::Shards }, now_us);
        fx.push(self.barrier_order(superstep));
    }

    /// Takes a worker that left out of every roster that is not closed.
    pub(super) fn strike(&mut self, worker: Incarnation, fx: &mut Vec<Effect>) {
        let listed: Vec<Superstep> = self
            .spans
            .iter()
            .filter(|(_, s)| !s.is_closed() && s.roster.contains_key(&worker))
            .map(|(n, _)| *n)
            .collect();
        for superstep in listed {
            let span = self.span(superstep);
            span.roster.remove(&worker);
            if span.end == End::Ordered {
                span.revision += 1;
                let iterations = span.iterations();
                if let Some(task) = self.tasks.get_mut(&TaskId::Barrier(superstep)) {
                    task.version = iterations;
                    self.touched.tasks.insert(TaskId::Barrier(superstep));
                }
                fx.push(self.barrier_order(superstep));
            }
        }
    }

    /// What the shards must be told about an ordered barrier.
    pub(super) fn barrier_order(&self, superstep: Superstep) -> Effect {
        let span = &self.spans[&superstep];
        let roster = span.roster.iter().map(|(w, share)| (*w, share.last.unwrap_or(share.base))).collect();
        let barrier = Barrier {
            superstep,
            revision: span.revision,
            roster,
            learning_rate: span.learning_rate,
            rule: RoundRule::Optimizer,
            pin: span.pin,
        };
        Effect::Order { job: self.id().clone(), generation: self.central.generation, barrier }
    }

    /// Asks the policy whether a watched superstep can be planned now.
    pub(super) fn observe(&mut self, superstep: Superstep, now_us: u64, fx: &mut Vec<Effect>) {
        let Some(span) = self.spans.get(&superstep).filter(|s| s.is_open()) else { return };
        let seen: Vec<Seen> = span
            .roster
            .iter()
            .filter_map(|(w, share)| {
                let m = self.members.get(w)?;
                Some(Seen {
                    worker: *w,
                    finished: m.finished,
                    granted: m.granted,
                    in_superstep: m.finished.saturating_sub(share.base),
                    last_end_us: m.last_end_us,
                    interval_us: m.interval_us,
                })
            })
            .collect();
        let Some(rows) = self.central.policy.as_dyn().observe(now_us, &seen) else { return };
        self.span(superstep).end = End::Planning(rows);
        fx.extend(self.plan_request(superstep));
    }

    /// The request behind a superstep that is being planned.
    pub(super) fn plan_request(&self, superstep: Superstep) -> Option<Effect> {
        let End::Planning(rows) = &self.spans.get(&superstep)?.end else { return None };
        Some(Effect::Plan(PlanRequest {
            job: self.id().clone(),
            generation: self.central.generation,
            superstep,
            rows: rows.clone(),
        }))
    }

    /// Takes a plan, reserves the samples it needs and leases the barrier.
    pub(super) fn planned(
        &mut self,
        superstep: Superstep,
        plan: Option<Plan>,
        now_us: u64,
        fx: &mut Vec<Effect>,
    ) {
        let Some(End::Planning(rows)) = self.spans.get(&superstep).map(|s| s.end.clone()) else { return };
        let fallback: BTreeMap<Incarnation, u64> = rows.iter().map(|r| (r.worker, r.first_seq)).collect();
        let last = plan.as_ref().map_or(&fallback, |p| &p.last);
        let wanted: Vec<(Incarnation, u64)> = self.spans[&superstep]
            .roster
            .keys()
            .map(|w| (*w, last.get(w).map_or(0, |l| l.saturating_sub(self.members[w].granted))))
            .collect();
        self.reserve(superstep, &wanted);
        let span = self.span(superstep);
        span.predicted = rows;
        span.predicted_wait_us = plan.as_ref().map(|p| p.predicted_wait_us);
        span.sync_at_us = plan.as_ref().map(|p| p.sync_at_us);
        self.order(superstep, now_us, fx);
    }

    /// A shard has closed barriers.
    pub(super) fn shard_closed(&mut self, shard: ShardIndex, stand: ShardStand, now_us: u64) {
        let ShardStand { closed, closed_ago_us, pushes } = stand;
        let at_us = now_us.saturating_sub(closed_ago_us);
        let open: Vec<Superstep> = self
            .spans
            .iter()
            .filter(|(n, s)| n.0 < closed && s.end == End::Ordered)
            .map(|(n, _)| *n)
            .collect();
        for superstep in open {
            self.span(superstep).closed_by.insert(shard, pushes);
            if self.spans[&superstep].closed_by.len() as u64 >= u64::from(self.central.shards) {
                self.close(superstep, at_us, now_us);
            }
        }
    }

    fn close(&mut self, superstep: Superstep, at_us: u64, now_us: u64) {
        let span = &self.spans[&superstep];
        // A worker whose last report is still on its way arrived last or nearly so.
        let actual_wait_us: u64 = span
            .roster
            .iter()
            .filter_map(|(w, share)| Some((self.members.get(w)?, share)))
            .filter(|(m, share)| share.last == Some(m.finished) && m.finished > share.base)
            .map(|(m, _)| at_us.saturating_sub(m.last_end_us))
            .sum();
        let predicted_wait_us = span.predicted_wait_us;
        self.span(superstep).end = End::Closed { closed_us: at_us, actual_wait_us };
        self.central.closed = self.central.closed.max(superstep.0 + 1);
        let counters = &mut self.central.counters;
        counters.barriers += 1;
        counters.predicted_wait_us += predicted_wait_us.unwrap_or(0);
        counters.actual_wait_us += actual_wait_us;
        let id = TaskId::Barrier(superstep);
        let attempt = self.tasks.get(&id).map_or(1, |t| t.attempts);
        self.apply(&id, &TaskEvent::Finished { attempt }, now_us);
    }
}

impl super::state::Span {
    /// The iterations this barrier waits for.
    fn iterations(&self) -> Vec<TaskId> {
        let last = |(w, share): (&Incarnation, &super::state::Share)| {
            let seq = share.last.filter(|&l| l > share.base)?;
            Some(TaskId::Iteration { worker: *w, seq })
        };
        self.roster.iter().filter_map(last).collect()
    }
}
