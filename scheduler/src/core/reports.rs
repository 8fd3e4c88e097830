//! What workers and shards report about tasks, and when a failed one is tried again.

use super::{
    event::Happening,
    inputs::TaskFault,
    job::Job,
    records::{Phase, TaskBody},
    shard_protocol::SnapshotFile,
    turn::Turn,
    worker_protocol::{Blame, Iterated, Outcome, TaskKey, TaskReport},
};
use crate::{
    fault_code::FaultCode,
    graph::{Holder, TaskEvent, TaskId, TrainingTaskState},
    ids::Incarnation,
    samples::SampleRange,
};

impl Job {
    /// Takes one report. Late and repeated ones change nothing, and so does one about what another works on.
    /// Returns the fault of a worker that cannot run this job.
    pub(super) fn report(
        &mut self,
        worker: Incarnation,
        report: TaskReport,
        turn: &mut Turn<'_>,
    ) -> Option<TaskFault> {
        let TaskReport { key, ended_ago_us, outcome } = report;
        if let TaskId::Prepare(owner) | TaskId::Iteration { worker: owner, .. } = key.task
            && owner != worker
        {
            return None;
        }
        if !outcome.is_of(&key.task) {
            return None;
        }
        if let TaskId::Iteration { seq, .. } = key.task
            && let Some(granted) = self.granted_to(worker)
            && seq > granted
        {
            let what = format!("{worker} has done iteration {seq}, {granted} are known there");
            self.store_lost(&what, turn);
            return None;
        }
        if !self.is_attempt_of(worker, &key) {
            return None;
        }
        match outcome {
            Outcome::Iterated(iterated) => {
                let end_us = turn.now_us.saturating_sub(ended_ago_us);
                self.iterated(worker, &key, &iterated, end_us, turn);
            }
            Outcome::Prepared => self.prepared(worker, &key, turn),
            Outcome::Evaluated(evaluation) => {
                if self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, turn.now_us) {
                    if let TaskId::Evaluation { .. } = key.task {
                        self.part_evaluated(&evaluation, turn.now_us);
                    } else {
                        self.node_evaluated(&evaluation, turn.now_us);
                        self.node_done(&key.task, turn.now_us);
                    }
                }
            }
            Outcome::Failed { code, reason, blame } => {
                let fault = TaskFault { code, reason };
                let own = match key.task {
                    // What others do all the time cannot be beyond the job.
                    TaskId::Prepare(_) => true,
                    // Whoever cannot evaluate may train all the same.
                    TaskId::Evaluation { .. } => false,
                    _ => blame == Blame::Worker,
                };
                if own {
                    return Some(fault);
                }
                match key.task {
                    TaskId::Iteration { .. } if self.goes_back_after_push(fault.code) => {
                        self.shard_failed(fault.code, fault.reason, turn);
                    }
                    _ => self.failed_by(worker, &key, fault, turn),
                }
            }
        }
        None
    }

    /// A worker failed at what it had in hand, or is gone with it.
    pub(super) fn failed_by(
        &mut self,
        worker: Incarnation,
        key: &TaskKey,
        fault: TaskFault,
        turn: &mut Turn<'_>,
    ) {
        match key.task {
            TaskId::Evaluation { .. } => self.part_failed(worker, key, fault, turn),
            _ => self.attempt_failed(key, fault, turn),
        }
    }

    /// Whether `worker` has this attempt in hand. A barrier, a snapshot and a training are never a worker's.
    fn is_attempt_of(&self, worker: Incarnation, key: &TaskKey) -> bool {
        let state = self.tasks.get(&key.task).map(|t| &t.state);
        let under_way = TrainingTaskState::Leased { holder: Holder::Worker(worker), attempt: key.attempt };
        state == Some(&under_way)
    }

    /// Whether this is the attempt that is under way.
    fn is_attempt(&self, key: &TaskKey) -> bool {
        let state = self.tasks.get(&key.task).map(|t| &t.state);
        matches!(state, Some(TrainingTaskState::Leased { attempt, .. }) if *attempt == key.attempt)
    }

    fn iterated(
        &mut self,
        worker: Incarnation,
        key: &TaskKey,
        it: &Iterated,
        end_us: u64,
        turn: &mut Turn<'_>,
    ) {
        let Some(TaskBody::Iteration { superstep, range, .. }) =
            self.tasks.get(&key.task).map(|t| t.body.clone())
        else {
            return;
        };
        if it.range != range {
            let what = format!("{} was given to {worker} with other samples", key.task);
            return self.store_lost(&what, turn);
        }
        if !self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, turn.now_us) {
            return;
        }
        self.state.metrics.add(it, u64::from(range.len));
        self.add_wait(worker, it.wait_us);
        self.state.epoch_losses.add(range.epoch, it);
        self.iteration_done(worker, range);
        let before = self.clocks.lowest();
        self.state.policy.as_dyn_mut().pushed(worker, end_us, &mut self.clocks);
        self.slowest_moved(before, turn.now_us);
        self.state.counters.max_lead = self.state.counters.max_lead.max(it.lead);
        self.state.counters.skip(it, u64::from(range.len));
        if !it.skipped && !it.loss.is_nan() {
            self.state.loss = Some(it.loss);
        }
        let entry = self.supersteps.get(&superstep).and_then(|record| record.roster.get(&worker));
        let batch = entry.map_or(range.len, |entry| entry.batch);
        self.member_mut(worker).observe(it, (range.len, batch), end_us);
        if let TaskId::Iteration { seq, .. } = key.task {
            self.arrived(worker, superstep, seq, end_us);
        }
        self.detect_stragglers(turn.now_us);
        self.plan_if_all_observed(worker, superstep, turn);
    }

    /// Counts time in which a worker waited, at a shard or before it was granted an iteration.
    pub(super) fn add_wait(&mut self, worker: Incarnation, wait_us: u64) {
        self.member_mut(worker).spent.wait_us += wait_us;
        self.state.metrics.wait_us += wait_us;
        self.state.counters.waited_us += wait_us;
    }

    /// The mean loss of the newest iterations of those that take part, each by its weight: under `bsp` that
    /// of a round. Of the newest report where nobody takes part any more, and where that is no number.
    /// Cost O(members).
    pub(super) fn loss(&self) -> Option<f32> {
        let newest = self.state.loss?;
        let each = self.active().filter_map(|worker| self.members[&worker].newest_loss);
        let (sum, weight) = each.fold((0.0, 0.0), |(sum, all), (loss, weight)| {
            (sum + f64::from(loss) * f64::from(weight), all + f64::from(weight))
        });
        Some(if newest.is_finite() && weight > 0.0 { (sum / weight) as f32 } else { newest })
    }

    /// Counts an iteration that every shard has applied, and moves the worker's front.
    pub(super) fn iteration_done(&mut self, worker: Incarnation, range: SampleRange) {
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
    pub(super) fn count(&mut self, range: SampleRange) {
        let all = self.train().epoch_samples();
        let state = &mut self.state;
        let counted = state.counted.entry(range.epoch).or_default();
        *counted += u64::from(range.len);
        if *counted == all {
            state.counted.remove(&range.epoch);
            state.epochs_complete += 1;
            state.epoch_losses.complete(range.epoch);
        }
    }

    fn advance_finished(&mut self, worker: Incarnation) {
        let before = self.members[&worker].finished;
        let iteration = |seq| TaskId::Iteration { worker, seq };
        let mut open = self.tasks.range(iteration(before + 1)..=iteration(u64::MAX));
        // Of a local round thousands may be leased, and their reports come together.
        let first_open = open.find_map(|(id, task)| match (id, &task.state) {
            (TaskId::Iteration { seq, .. }, TrainingTaskState::Leased { .. }) => Some(*seq),
            _ => None,
        });
        let member = self.member_mut(worker);
        member.finished = first_open.map_or(member.granted, |seq| seq - 1);
        let now = member.finished;
        if let Some(newest) = self.supersteps.values_mut().next_back() {
            newest.count_progress(worker, before, now);
        }
    }

    /// An attempt failed. A node is tried again as often as it may be; an iteration ends the job.
    pub(super) fn attempt_failed(&mut self, key: &TaskKey, fault: TaskFault, turn: &mut Turn<'_>) {
        if !self.is_attempt(key) {
            return;
        }
        let Some(task) = self.tasks.get_mut(&key.task) else { return };
        task.failures += 1;
        let failures = task.failures;
        let retries = match &key.task {
            TaskId::Node(name) => self.spec.nodes.iter().find(|n| n.name == *name).map_or(0, |n| n.retries),
            _ => 0,
        };
        if failures <= retries {
            self.apply(&key.task, &TaskEvent::Retried, turn.now_us);
            let (task, attempt) = (key.task.clone(), key.attempt);
            return self.tell(Happening::NodeFailed { task, attempt, fault }, turn.now_us);
        }
        let (code, reason) = (fault.code, fault.reason.clone());
        self.apply(&key.task, &TaskEvent::Failed { attempt: key.attempt, code, reason }, turn.now_us);
        let reason = format!("task {}: {}", key.task, fault.reason);
        self.end(Phase::Failed { code: fault.code, reason }, turn);
    }

    pub(super) fn snapshot_written(
        &mut self,
        key: &TaskKey,
        outcome: Result<SnapshotFile, TaskFault>,
        turn: &mut Turn<'_>,
    ) {
        match outcome {
            Ok(file) => {
                if self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, turn.now_us) {
                    self.state.snapshot = Some(file);
                    self.node_done(&key.task, turn.now_us);
                }
            }
            // A full disk can be emptied; what was trained must not be thrown away meanwhile.
            Err(fault) if fault.code == FaultCode::SHARD_IO && self.is_attempt(key) => {
                self.postpone(key, &fault, turn.now_us);
                let (task, attempt) = (key.task.clone(), key.attempt);
                self.tell(Happening::SnapshotPutOff { task, attempt, fault }, turn.now_us);
            }
            Err(fault) => self.attempt_failed(key, fault, turn),
        }
    }
}
