//! Barriers: planned, leased to the shards in advance, amended when somebody leaves, closed by the shards.

use std::collections::BTreeMap;

use super::{
    io::{Barrier, Effect, ShardStand},
    job::Job,
    state::{End, Share, Task, TaskBody},
};
use crate::{
    graph::{Holder, TaskEvent, TaskId},
    ids::{Incarnation, ShardIndex, Superstep},
    sync::{Ending, Plan, PlanRequest, PlanRow, RoundRule, Rounds, Seen},
};

impl Job {
    /// Leases the barrier of a superstep to every shard. Every share has its last iteration by now.
    pub(super) fn order(&mut self, superstep: Superstep, now_us: u64, fx: &mut Vec<Effect>) {
        let pin = self.central.cursor.is_exhausted();
        let span = self.span(superstep);
        span.end = End::Ordered;
        span.unseen.clear();
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
            span.unseen.remove(&worker);
            if span.end == End::Ordered {
                self.amend(superstep, fx);
            }
        }
    }

    /// Sends the shards the changed roster of an ordered barrier.
    pub(super) fn amend(&mut self, superstep: Superstep, fx: &mut Vec<Effect>) {
        let span = self.span(superstep);
        span.revision += 1;
        let iterations = span.iterations();
        if let Some(task) = self.tasks.get_mut(&TaskId::Barrier(superstep)) {
            task.version = iterations;
            self.touched.tasks.insert(TaskId::Barrier(superstep));
        }
        fx.push(self.barrier_order(superstep));
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
            rule: match span.rounds {
                Rounds::LocalAverage => RoundRule::Average,
                Rounds::PerPush | Rounds::PerBarrier | Rounds::LocalOuter { .. } => RoundRule::Optimizer,
            },
            pin: span.pin,
        };
        Effect::Order { job: self.id().clone(), generation: self.central.generation, barrier }
    }

    /// A worker of a superstep finished an iteration: plans the superstep once everybody has been watched long
    /// enough.
    pub(super) fn watched(
        &mut self,
        worker: Incarnation,
        superstep: Superstep,
        now_us: u64,
        fx: &mut Vec<Effect>,
    ) {
        let Some(span) = self.spans.get_mut(&superstep) else { return };
        let (End::Open(Ending::Monitor { pushes }), Some(share)) = (&span.end, span.roster.get(&worker))
        else {
            return;
        };
        if self.members.get(&worker).is_some_and(|m| m.finished >= share.base + pushes) {
            span.unseen.remove(&worker);
        }
        // A single worker has nobody to meet.
        if !span.unseen.is_empty() || span.roster.len() < 2 {
            return;
        }
        let seen = self.seen(superstep);
        let rows = self.central.policy.as_dyn().rows(now_us, &seen);
        if !rows.is_empty() {
            self.span(superstep).end = End::Planning(rows);
            fx.extend(self.plan_request(superstep));
        }
    }

    /// The workers of a superstep as the planner sees them.
    pub(super) fn seen(&self, superstep: Superstep) -> Vec<Seen> {
        let seen = |(w, share): (&Incarnation, &Share)| {
            let m = self.members.get(w)?;
            Some(Seen {
                worker: *w,
                finished: m.finished,
                granted: m.granted,
                in_superstep: m.finished.saturating_sub(share.base),
                last_end_us: m.last_end_us,
                interval_us: m.speed.interval_us(share.batch).unwrap_or(m.interval_us),
            })
        };
        self.spans.get(&superstep).into_iter().flat_map(|span| &span.roster).filter_map(seen).collect()
    }

    /// The request behind a superstep that is being planned.
    pub(super) fn plan_request(&self, superstep: Superstep) -> Option<Effect> {
        let span = self.spans.get(&superstep)?;
        let End::Planning(rows) = &span.end else { return None };
        Some(self.request(superstep, rows.clone(), span.revision))
    }

    pub(super) fn request(&self, superstep: Superstep, rows: Vec<PlanRow>, revision: u32) -> Effect {
        Effect::Plan(PlanRequest {
            job: self.id().clone(),
            generation: self.central.generation,
            superstep,
            revision,
            rows,
            searching: self.central.policy.as_dyn().searching(),
        })
    }

    /// Takes a plan: of a superstep that was watched, or a new one for workers that overran theirs.
    pub(super) fn planned(
        &mut self,
        superstep: Superstep,
        revision: u32,
        plan: Option<Plan>,
        now_us: u64,
        fx: &mut Vec<Effect>,
    ) {
        match self.spans.get(&superstep).map(|s| (s.end.clone(), s.revision)) {
            Some((End::Planning(rows), _)) => self.adopt(superstep, rows, plan, now_us, fx),
            Some((End::Ordered, current)) if current == revision => {
                if let Some(plan) = plan {
                    self.shorten(superstep, &plan, now_us, fx);
                }
            }
            _ => {}
        }
    }

    /// Reserves the samples that a plan needs and leases the barrier.
    fn adopt(
        &mut self,
        superstep: Superstep,
        rows: Vec<PlanRow>,
        plan: Option<Plan>,
        now_us: u64,
        fx: &mut Vec<Effect>,
    ) {
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
        if let Some(plan) = plan {
            span.weighed = plan.weighed;
            span.span_us = Some(plan.span_us);
            span.predicted_wait_us = Some(plan.predicted_wait_us);
            span.sync_at_us = Some(plan.sync_at_us);
        }
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
        let Self { spans, members, .. } = self;
        let Some(span) = spans.get_mut(&superstep) else { return };
        let (mut actual_wait_us, mut least, mut most) = (0, u64::MAX, 0);
        for (worker, share) in &mut span.roster {
            let Some(member) = members.get(worker) else { continue };
            let done = share.last.unwrap_or(share.base) - share.base;
            (least, most) = (least.min(done), most.max(done));
            // A worker whose last report is still on its way arrived last or nearly so.
            if share.last == Some(member.finished) && done > 0 {
                share.arrived_us = Some(member.last_end_us);
                actual_wait_us += at_us.saturating_sub(member.last_end_us);
            }
        }
        let predicted_wait_us = span.predicted_wait_us;
        let fields = vec![
            ("barrier", superstep.to_string()),
            ("at_ms", (at_us / 1000).to_string()),
            ("rule", span.why.rule.clone()),
            ("workers", span.roster.len().to_string()),
            ("iterations_least", least.min(most).to_string()),
            ("iterations_most", most.to_string()),
            ("predicted_wait_us", predicted_wait_us.map(|us| us.to_string()).unwrap_or_default()),
            ("actual_wait_us", actual_wait_us.to_string()),
        ];
        self.span(superstep).end = End::Closed { closed_us: at_us, actual_wait_us };
        self.central.closed = self.central.closed.max(superstep.0 + 1);
        let counters = &mut self.central.counters;
        counters.barriers += 1;
        counters.predicted_wait_us += predicted_wait_us.unwrap_or(0);
        counters.actual_wait_us += actual_wait_us;
        self.touched.barriers.push(fields);
        let id = TaskId::Barrier(superstep);
        let attempt = self.tasks.get(&id).map_or(1, |t| t.attempts);
        self.apply(&id, &TaskEvent::Finished { attempt }, now_us);
    }
}

impl super::state::Span {
    /// The iterations this barrier waits for.
    fn iterations(&self) -> Vec<TaskId> {
        let last = |(w, share): (&Incarnation, &Share)| {
            let seq = share.last.filter(|&l| l > share.base)?;
            Some(TaskId::Iteration { worker: *w, seq })
        };
        self.roster.iter().filter_map(last).collect()
    }
}
