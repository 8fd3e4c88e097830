//! What workers report, and what becomes of the work of those who leave.

use super::{
    effects::Effect,
    inputs::TaskFault,
    job::Job,
    records::{Membership, Phase, TaskBody, TimeTotals},
    shard_protocol::{PushProgress, SnapshotFile},
    worker_protocol::{Blame, Iterated, Outcome, TaskKey, TaskReport},
};
use crate::{
    graph::{TaskEvent, TaskId, TaskState},
    ids::{Incarnation, ShardIndex},
    predict::Measurement,
    samples::SampleRange,
};

/// Faults of a snapshot that may pass: the disk is full, or a shard cannot be reached.
const PASSING: [&str; 2] = ["E406", "E410"];

impl Job {
    /// Takes one report. Late and repeated ones change nothing. Returns the fault of a worker that cannot run this job.
    pub(super) fn report(
        &mut self,
        worker: Incarnation,
        report: TaskReport,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) -> Option<TaskFault> {
        let TaskReport { key, ended_ago_us, outcome } = report;
        let granted = self.members.get(&worker)?.granted;
        if let TaskId::Iteration { worker: owner, seq } = key.task {
            if owner != worker {
                return None;
            }
            if seq > granted {
                let what = format!("{worker} has done iteration {seq}, {granted} are known there");
                self.store_lost(&what, now_us, effects);
                return None;
            }
        }
        match outcome {
            Outcome::Iterated(iterated) => {
                let end_us = now_us.saturating_sub(ended_ago_us);
                self.iterated(worker, &key, &iterated, end_us, now_us, effects);
            }
            Outcome::Evaluated(evaluation) => {
                if self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, now_us) {
                    self.state.evaluation = Some(evaluation);
                    self.node_done(&key.task, now_us);
                }
            }
            Outcome::Failed { code, reason, blame } => {
                let fault = TaskFault { code, reason };
                if blame == Blame::Worker && self.is_attempt(&key) {
                    return Some(fault);
                }
                self.attempt_failed(&key, fault, now_us, effects);
            }
        }
        None
    }

    /// Whether this is the attempt that is under way.
    fn is_attempt(&self, key: &TaskKey) -> bool {
        let state = self.tasks.get(&key.task).map(|t| &t.state);
        matches!(state, Some(TaskState::Leased { attempt, .. }) if *attempt == key.attempt)
    }

    fn iterated(
        &mut self,
        worker: Incarnation,
        key: &TaskKey,
        it: &Iterated,
        end_us: u64,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(TaskBody::Iteration { superstep, range, .. }) =
            self.tasks.get(&key.task).map(|t| t.body.clone())
        else {
            return;
        };
        if it.range != range && self.is_attempt(key) {
            let what = format!("{} was given to {worker} with other samples", key.task);
            return self.store_lost(&what, now_us, effects);
        }
        if !self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, now_us) {
            return;
        }
        let samples = u64::from(range.len);
        let metrics = &mut self.metrics;
        metrics.iterations += 1;
        metrics.samples += samples;
        metrics.loss_sum += f64::from(it.loss) * samples as f64;
        metrics.busy_us += it.busy_us();
        metrics.compute_us += it.compute_us;
        metrics.wait_us += it.wait_us;
        metrics.staleness_sum += it.staleness;
        metrics.staleness_max = metrics.staleness_max.max(it.staleness);

        self.iteration_done(worker, range);
        let before = self.clocks.lowest();
        self.state.policy.as_dyn_mut().pushed(worker, end_us, &mut self.clocks);
        self.slowest_moved(before, now_us);
        self.state.counters.max_lead = self.state.counters.max_lead.max(it.lead);
        self.state.counters.skipped += u64::from(it.skipped);
        if !it.skipped {
            self.state.loss = Some(it.loss);
        }
        let member = self.member_mut(worker);
        member.last_end_us = end_us;
        member.interval_us = it.busy_us();
        member.interval_samples = range.len;
        let measured = Measurement {
            interval_us: it.busy_us(),
            samples: range.len,
            cpu_load: it.cpu_load,
            memory_load: it.memory_load,
        };
        member.speed.observe(&measured);
        if let Some(curve) = &mut member.curve {
            curve.observe(range.len, it.busy_us());
        }
        member.step_times.add(it);
        member.spent.add(it, samples);
        self.detect_stragglers(now_us);
        self.plan_if_all_observed(worker, superstep, now_us, effects);
    }

    /// Counts an iteration that every shard has applied, and moves the worker's front.
    fn iteration_done(&mut self, worker: Incarnation, range: SampleRange) {
        self.state.counters.done += 1;
        self.state.counters.samples_done += u64::from(range.len);
        self.count(range);
        self.advance_finished(worker);
    }

    pub(super) fn put_back(&mut self, range: SampleRange) {
        self.state.cursor.put_back(range);
        self.grant_queue.everybody = true;
    }

    /// Counts the samples of an iteration in their epoch.
    fn count(&mut self, range: SampleRange) {
        let all = self.train().epoch_samples();
        let state = &mut self.state;
        let counted = state.counted.entry(range.epoch).or_default();
        *counted += u64::from(range.len);
        if *counted == all {
            state.counted.remove(&range.epoch);
            state.epochs_complete += 1;
        }
    }

    fn advance_finished(&mut self, worker: Incarnation) {
        let first_open = self.leased_to(worker).into_iter().find_map(|id| match id {
            TaskId::Iteration { seq, .. } => Some(seq),
            _ => None,
        });
        let member = self.member_mut(worker);
        member.finished = first_open.map_or(member.granted, |seq| seq - 1);
    }

    /// A worker is gone: the shards are asked how far its pushes came before anything else is decided about them.
    pub(super) fn worker_gone(
        &mut self,
        worker: Incarnation,
        reason: &str,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.members.get(&worker).is_none_or(|m| m.membership != Membership::Active) {
            return;
        }
        self.member_mut(worker).membership = Membership::Sealing { answers: Default::default() };
        self.stop_clock(worker, now_us);
        let mut fields = self.about_worker(worker);
        fields.push(("reason", reason.to_owned()));
        self.event("worker_lost", now_us, fields);
        for id in self.leased_to(worker) {
            if self.tasks.get(&id).is_some_and(|t| t.body.is_node()) {
                let fault = TaskFault {
                    code: "E210".into(),
                    reason: format!("worker {} left: {reason}", self.display_name(worker)),
                };
                let attempt = self.tasks.get(&id).map_or(0, |t| t.attempts);
                let key = self.key(id, attempt);
                self.attempt_failed(&key, fault, now_us, effects);
            }
        }
        if matches!(self.state.phase, Phase::Running) {
            let (job, generation) = (self.id().clone(), self.state.generation);
            effects.push(Effect::Seal { job, generation, worker });
        } else {
            // Nothing was ever pushed.
            self.member_mut(worker).membership = Membership::Gone;
        }
    }

    /// One shard's answer about a worker that is gone. With the last one its iterations are settled: what every
    /// shard has applied is done, the next is torn if any shard has some of it, the others go back to the pool.
    pub(super) fn sealed(
        &mut self,
        worker: Incarnation,
        shard: ShardIndex,
        progress: PushProgress,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        let shards = u64::from(self.state.shards);
        if !matches!(self.members.get(&worker).map(|m| &m.membership), Some(Membership::Sealing { .. })) {
            return;
        }
        let Membership::Sealing { answers } = &mut self.member_mut(worker).membership else { return };
        answers.insert(shard, progress);
        if (answers.len() as u64) < shards {
            return;
        }
        let applied = answers.values().map(|s| s.watermark).min().unwrap_or(0);
        let begun = answers.values().any(|s| s.watermark > applied || s.watermark == applied && s.partial);
        for id in self.leased_to(worker) {
            let TaskId::Iteration { seq, .. } = id else { continue };
            self.settle_iteration(worker, &id, seq, applied, begun, now_us);
        }
        let reserved = std::mem::take(&mut self.member_mut(worker).reserved);
        for range in reserved {
            self.put_back(range);
        }
        let member = self.member_mut(worker);
        member.membership = Membership::Gone;
        member.finished = member.granted;
        member.planned = member.granted;
        self.remove_from_rosters(worker, effects);
        let mut fields = self.about_worker(worker);
        fields.push(("applied", applied.to_string()));
        self.event("worker_sealed", now_us, fields);
    }

    fn settle_iteration(
        &mut self,
        worker: Incarnation,
        id: &TaskId,
        seq: u64,
        applied: u64,
        begun: bool,
        now_us: u64,
    ) {
        let Some(TaskBody::Iteration { range, .. }) = self.tasks.get(id).map(|t| t.body.clone()) else {
            return;
        };
        if seq <= applied {
            let attempt = self.tasks.get(id).map_or(1, |t| t.attempts);
            self.apply(id, &TaskEvent::Finished { attempt }, now_us);
            self.iteration_done(worker, range);
        } else if begun && seq <= self.torn_until(worker, id, applied) {
            self.apply(id, &TaskEvent::TornApart, now_us);
            self.state.counters.torn += 1;
            self.state.counters.samples_torn += u64::from(range.len);
            self.count(range);
            self.event("iteration_torn", now_us, vec![("task", id.to_string())]);
        } else {
            self.apply(id, &TaskEvent::HolderGone { again: false }, now_us);
            self.state.counters.lost += 1;
            self.put_back(range);
        }
    }

    /// The last iteration in the push that comes after `applied`: a local round is one push.
    fn torn_until(&self, worker: Incarnation, id: &TaskId, applied: u64) -> u64 {
        let Some(TaskBody::Iteration { superstep, .. }) = self.tasks.get(id).map(|t| &t.body) else {
            return applied;
        };
        let local = self.supersteps.get(superstep).filter(|s| s.aggregation.is_local());
        let entry = local.and_then(|s| s.roster.get(&worker)).filter(|entry| entry.base <= applied);
        entry.and_then(|entry| entry.last).unwrap_or(applied + 1)
    }

    /// An attempt failed. A node is tried again as often as it may be; an iteration ends the job.
    pub(super) fn attempt_failed(
        &mut self,
        key: &TaskKey,
        fault: TaskFault,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_attempt(key) {
            return;
        }
        let Some(task) = self.tasks.get(&key.task) else { return };
        let retries = match &key.task {
            TaskId::Node(name) => self.spec.nodes.iter().find(|n| n.name == *name).map_or(0, |n| n.retries),
            _ => 0,
        };
        if task.attempts <= retries {
            self.apply(&key.task, &TaskEvent::HolderGone { again: true }, now_us);
            let fields = vec![
                ("task", key.task.to_string()),
                ("attempt", key.attempt.to_string()),
                ("code", fault.code),
                ("reason", fault.reason),
            ];
            self.event("attempt_failed", now_us, fields);
            return;
        }
        let (code, reason) = (fault.code.clone(), fault.reason.clone());
        self.apply(&key.task, &TaskEvent::Failed { attempt: key.attempt, code, reason }, now_us);
        let reason = format!("task {}: {}", key.task, fault.reason);
        self.end(Phase::Failed { code: fault.code, reason }, now_us, effects);
    }

    pub(super) fn snapshot_written(
        &mut self,
        key: &TaskKey,
        outcome: Result<SnapshotFile, TaskFault>,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) {
        match outcome {
            Ok(file) => {
                if self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, now_us) {
                    self.state.snapshot = Some(file);
                    self.node_done(&key.task, now_us);
                }
            }
            // A full disk can be emptied; what was trained must not be thrown away meanwhile.
            Err(fault) if PASSING.contains(&fault.code.as_str()) && self.is_attempt(key) => {
                let fields = vec![
                    ("task", key.task.to_string()),
                    ("attempt", key.attempt.to_string()),
                    ("code", fault.code.clone()),
                    ("reason", fault.reason.clone()),
                ];
                self.event("snapshot_put_off", now_us, fields);
                self.postpone(key, &fault, now_us);
            }
            Err(fault) => self.attempt_failed(key, fault, now_us, effects),
        }
    }
}

impl TimeTotals {
    fn add(&mut self, it: &Iterated, samples: u64) {
        self.iterations += 1;
        self.samples += samples;
        self.compute_us += it.compute_us;
        self.throttle_us += it.throttle_us;
        self.pull_us += it.pull_us;
        self.push_us += it.push_us;
        self.wait_us += it.wait_us;
    }
}
