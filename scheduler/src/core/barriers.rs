//! Barriers: planned, leased to the shards in advance, amended when somebody leaves.

use std::collections::BTreeMap;

use super::{
    effects::Effect,
    job::Job,
    records::{Task, TaskBody},
    shard_protocol::BarrierOrder,
    superstep::{RosterEntry, SuperstepPhase},
    turn::Turn,
};
use crate::{
    graph::{Holder, TaskEvent, TaskId},
    ids::{Incarnation, Superstep},
    sync::{Aggregation, EndRule, Plan, PlanRequest, PlanRow, WorkerProgress},
};

impl Job {
    /// Leases the barrier of a superstep to every shard. Every entry of its roster has its last iteration by
    /// now.
    pub(super) fn order_barrier(&mut self, superstep: Superstep, turn: &mut Turn<'_>) {
        let pin = self.state.cursor.is_exhausted();
        let record = self.superstep_mut(superstep);
        record.phase = SuperstepPhase::Ordered;
        record.unobserved.clear();
        record.progress.clear();
        record.revision += 1;
        record.pin |= pin;
        let id = TaskId::Barrier(superstep);
        let mut task = Task::new(TaskBody::Barrier, 0, turn.now_us);
        task.version = record.iterations();
        self.tasks.insert(id.clone(), task);
        self.apply(&id, &TaskEvent::Leased { holder: Holder::Shards }, turn.now_us);
        self.note_arrivals(superstep);
        turn.effects.push(self.barrier_order(superstep));
    }

    /// Takes a worker that left out of every roster that is not closed.
    pub(super) fn remove_from_rosters(&mut self, worker: Incarnation, effects: &mut Vec<Effect>) {
        let listed: Vec<Superstep> = self
            .supersteps
            .iter()
            .filter(|(_, s)| !s.is_closed() && s.roster.contains_key(&worker))
            .map(|(n, _)| *n)
            .collect();
        for superstep in listed {
            let record = self.superstep_mut(superstep);
            record.roster.remove(&worker);
            record.unobserved.remove(&worker);
            record.progress.retain(|(_, other)| *other != worker);
            if record.phase == SuperstepPhase::Ordered {
                self.reissue_barrier(superstep, effects);
            }
        }
    }

    /// Sends the shards the changed roster of an ordered barrier.
    pub(super) fn reissue_barrier(&mut self, superstep: Superstep, effects: &mut Vec<Effect>) {
        let record = self.superstep_mut(superstep);
        record.revision += 1;
        let iterations = record.iterations();
        if let Some(task) = self.tasks.get_mut(&TaskId::Barrier(superstep)) {
            task.version = iterations;
            self.changes.tasks.insert(TaskId::Barrier(superstep));
        }
        self.note_arrivals(superstep);
        effects.push(self.barrier_order(superstep));
    }

    /// What the shards must be told about an ordered barrier.
    pub(super) fn barrier_order(&self, superstep: Superstep) -> Effect {
        let record = &self.supersteps[&superstep];
        let order = BarrierOrder {
            superstep,
            revision: record.revision,
            roster: record.order_roster(),
            rule: record.aggregation.round_rule(),
            learning_rate: record.step_rate(self.train().batch),
            pin: record.pin,
        };
        Effect::OrderBarrier { run: self.run(), order }
    }

    /// A worker of a superstep finished an iteration: plans the superstep once everybody has been watched
    /// long enough.
    pub(super) fn plan_if_all_observed(
        &mut self,
        worker: Incarnation,
        superstep: Superstep,
        turn: &mut Turn<'_>,
    ) {
        let Some(record) = self.supersteps.get_mut(&superstep) else { return };
        let (SuperstepPhase::Open(EndRule::Monitor { pushes }), Some(entry)) =
            (&record.phase, record.roster.get(&worker))
        else {
            return;
        };
        if self.members.get(&worker).is_some_and(|m| m.finished >= entry.base + pushes) {
            record.unobserved.remove(&worker);
        }
        if !record.unobserved.is_empty() {
            return;
        }
        // A single worker has nobody to meet. Where only a barrier steps, there is one all the same.
        if record.roster.len() < 2 {
            if record.aggregation == Aggregation::PerBarrier {
                self.end_open_superstep(turn);
            }
            return;
        }
        let seen = self.worker_progress(superstep);
        let rows = self.state.policy.as_dyn().rows(turn.now_us, &seen);
        if !rows.is_empty() {
            let record = self.superstep_mut(superstep);
            record.phase = SuperstepPhase::Planning(rows);
            record.progress.clear();
            turn.effects.extend(self.plan_request(superstep));
        }
    }

    /// The workers of a superstep as the planner sees them.
    pub(super) fn worker_progress(&self, superstep: Superstep) -> Vec<WorkerProgress> {
        let seen = |(w, entry): (&Incarnation, &RosterEntry)| {
            let m = self.members.get(w)?;
            Some(WorkerProgress {
                worker: *w,
                finished: m.finished,
                granted: m.granted,
                in_superstep: m.finished.saturating_sub(entry.base),
                last_end_us: m.last_end_us,
                interval_us: m.speed.interval_us(entry.batch).unwrap_or(m.interval_us),
            })
        };
        self.supersteps
            .get(&superstep)
            .into_iter()
            .flat_map(|record| &record.roster)
            .filter_map(seen)
            .collect()
    }

    /// The request behind a superstep that is being planned.
    pub(super) fn plan_request(&self, superstep: Superstep) -> Option<Effect> {
        let record = self.supersteps.get(&superstep)?;
        let SuperstepPhase::Planning(rows) = &record.phase else { return None };
        Some(self.plan_request_for(superstep, rows.clone(), record.revision))
    }

    pub(super) fn plan_request_for(&self, superstep: Superstep, rows: Vec<PlanRow>, revision: u32) -> Effect {
        Effect::Plan(PlanRequest {
            run: self.run(),
            superstep,
            revision,
            rows,
            search_options: self.state.policy.as_dyn().search_options(),
        })
    }

    /// Takes a plan: of a superstep that was watched, or a new one for workers that overran theirs.
    pub(super) fn take_plan(
        &mut self,
        superstep: Superstep,
        revision: u32,
        plan: Option<Plan>,
        turn: &mut Turn<'_>,
    ) {
        match self.supersteps.get(&superstep).map(|s| (s.phase.clone(), s.revision)) {
            Some((SuperstepPhase::Planning(rows), _)) => self.apply_first_plan(superstep, rows, plan, turn),
            Some((SuperstepPhase::Ordered, current)) if current == revision => {
                if let Some(plan) = plan {
                    self.apply_replan(superstep, plan, turn);
                }
            }
            _ => {}
        }
    }

    /// Reserves the samples that a plan needs and leases the barrier.
    pub(super) fn apply_first_plan(
        &mut self,
        superstep: Superstep,
        rows: Vec<PlanRow>,
        plan: Option<Plan>,
        turn: &mut Turn<'_>,
    ) {
        let fallback: BTreeMap<Incarnation, u64> = rows.iter().map(|r| (r.worker, r.first_seq)).collect();
        let last = plan.as_ref().map_or(&fallback, |p| &p.last);
        let wanted: Vec<(Incarnation, u64)> = self.supersteps[&superstep]
            .roster
            .keys()
            .map(|w| (*w, last.get(w).map_or(0, |l| l.saturating_sub(self.members[w].planned))))
            .collect();
        self.reserve(superstep, &wanted);
        let record = self.superstep_mut(superstep);
        record.predicted = rows;
        if let Some(plan) = plan {
            record.follow(plan);
        }
        self.order_barrier(superstep, turn);
    }
}
