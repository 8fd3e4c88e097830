//! The nodes that the user wrote: when training is over, what follows, and when the job is done.

use super::{
    effects::Effect,
    event::Happening,
    inputs::TaskFault,
    job::Job,
    member::Membership,
    records::{Phase, Retry, TaskBody},
    tasks::waits_to_be_resumed,
    turn::Turn,
    worker_protocol::TaskKey,
};
use crate::{
    graph::{Holder, TaskEvent, TaskId, TrainingTaskState},
    ids::{Incarnation, NodeName},
};

/// Pause after so many failures of a node.
fn pause_us(failures: u32) -> u64 {
    (1_000_000 << (failures.saturating_sub(1)).min(16)).min(LONGEST_PAUSE_US)
}

const LONGEST_PAUSE_US: u64 = 60_000_000;

/// What a running job as a whole waits for.
pub(super) enum Wait {
    /// In words.
    Told(String),
    /// So many workers at once: nobody takes part.
    Workers(u32),
}

impl Job {
    /// Everything that follows from the present state; called after every input that may have changed it, and
    /// at each tick.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.state.phase, Phase::Running) {
            return;
        }
        self.note_absence(turn.now_us);
        match self.describe_wait(turn.now_us) {
            None => self.wait_for(None),
            Some(Wait::Told(what)) => self.wait_for(Some(what)),
            // Noted behind this, by who knows of all workers: see `lacking_workers`.
            Some(Wait::Workers(_)) => {}
        }
        let train = TaskId::Node(self.train_node().clone());
        match self.tasks.get(&train).map(|t| &t.state) {
            Some(TrainingTaskState::Ready) => {
                self.apply(&train, &TaskEvent::Leased { holder: Holder::Planner }, turn.now_us);
            }
            Some(TrainingTaskState::Leased { .. }) => {}
            _ => return self.run_nodes(turn),
        }
        self.rest_when_due(turn.now_us);
        self.rest_for_evaluation(turn.now_us);
        self.grant(turn);
        self.end_when_exhausted(turn);
        self.take_checkpoint_at_rest(turn);
        self.evaluate_at_rest(turn);
        let is_trained = self.is_trained();
        if let Some(reason) = self.why_in_vain(is_trained) {
            return self.end_in_vain(reason, turn);
        }
        let is_over = is_trained && self.settle_parameters(turn);
        if is_over && !self.tests_at_end(turn) {
            self.state.trained_for_us = self.training_us(turn.now_us);
            self.state.trained_us = Some(turn.now_us);
            self.state.loss = self.loss();
            self.apply(&train, &TaskEvent::Finished { attempt: 1 }, turn.now_us);
            let barriers = self.state.counters.barriers;
            self.tell(Happening::Trained { barriers }, turn.now_us);
            self.node_done(&train, turn.now_us);
            self.run_nodes(turn);
        }
    }

    /// Every sample is accounted for, the last barrier is closed, and nobody evaluates.
    fn is_trained(&self) -> bool {
        self.state.cursor.is_exhausted()
            && !self.state.evaluations.rests()
            && self.supersteps.values().all(|s| s.is_closed())
            && self.members.values().all(|m| match m.membership {
                Membership::Active => m.outstanding() == 0,
                Membership::Sealing { .. } => false,
                Membership::Preparing | Membership::Gone => true,
            })
    }

    /// Tells the followers of a node that it is done.
    pub(super) fn node_done(&mut self, id: &TaskId, now_us: u64) {
        if let TaskId::Node(name) = id {
            self.state.retries.remove(name);
        }
        let followers: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| t.control.contains(id)).map(|(id, _)| id.clone()).collect();
        for follower in followers {
            self.apply(&follower, &TaskEvent::InputDone, now_us);
        }
    }

    fn run_nodes(&mut self, turn: &mut Turn<'_>) {
        let ready: Vec<(TaskId, TaskBody)> = self
            .tasks
            .iter()
            .filter(|(id, t)| t.state == TrainingTaskState::Ready && !self.is_postponed(id, turn.now_us))
            .map(|(id, t)| (id.clone(), t.body.clone()))
            .collect();
        for (id, body) in ready {
            match body {
                TaskBody::Evaluate if self.state.paused => {}
                TaskBody::Evaluate => {
                    let Some(worker) = self.least_loaded_worker() else { continue };
                    self.apply(&id, &TaskEvent::Leased { holder: Holder::Worker(worker) }, turn.now_us);
                    if let Some(assignment) = self.assignment(&id) {
                        turn.effects.push(Effect::Assign { worker, assignment });
                    }
                }
                // A shard cannot write without the parts of the others.
                TaskBody::Snapshot if self.awaits_shards() => {}
                TaskBody::Snapshot => {
                    self.apply(&id, &TaskEvent::Leased { holder: Holder::Shards }, turn.now_us);
                    turn.effects.extend(self.snapshot_order(&id));
                }
                TaskBody::Train
                | TaskBody::Barrier
                | TaskBody::Clock
                | TaskBody::Prepare
                | TaskBody::EvaluatePart { .. }
                | TaskBody::Iteration { .. } => {}
            }
        }
        if self.tasks.values().filter(|t| t.body.is_node()).all(|t| t.state == TrainingTaskState::Done) {
            self.end(Phase::Done, turn);
        }
    }

    /// What a running job as a whole waits for.
    pub(super) fn describe_wait(&self, now_us: u64) -> Option<Wait> {
        if let Some(what) = self.describe_obstacle(now_us) {
            return Some(Wait::Told(what));
        }
        if self.members.values().any(|m| !m.is_gone()) {
            let late = self.describe_standstill(now_us).or_else(|| self.describe_beginners());
            return late.map(Wait::Told);
        }
        Some(match self.needed_behind_training() {
            Some(0) => Wait::Told("the shards, which write its snapshot".into()),
            needed => Wait::Workers(needed.unwrap_or(self.train().min_workers)),
        })
    }

    /// What keeps it from going on, whoever takes part, in words.
    fn describe_obstacle(&self, now_us: u64) -> Option<String> {
        if let Some(lost) = self.describe_lost_shards() {
            return Some(lost);
        }
        if self.state.paused {
            return Some(waits_to_be_resumed(self.id()));
        }
        if let Some((node, retry)) = self.state.retries.iter().next() {
            let (pause_s, reason) = (pause_us(retry.failures) / 1_000_000, &retry.reason);
            return Some(match node == self.train_node() {
                true => format!(
                    "the shards, which try to write the last parameters as a checkpoint, every {pause_s} s for ten minutes: {reason}"
                ),
                false => format!(
                    "node {node}, which is tried again every {pause_s} s until it works or the job is canceled: {reason}"
                ),
            });
        }
        if self.state.checkpoints.rests() {
            let late = self.describe_standstill(now_us).map(|late| format!("; it waits for {late}"));
            let what = "a checkpoint: all come to rest, and the shards copy the parameters";
            return Some(format!("{what}{}", late.unwrap_or_default()));
        }
        if self.is_writing_its_end() {
            return Some(self.waits_for_writing().into());
        }
        self.describe_evaluation(now_us).filter(|_| self.active().next().is_some())
    }

    pub(super) fn is_postponed(&self, id: &TaskId, now_us: u64) -> bool {
        let TaskId::Node(name) = id else { return false };
        self.state.retries.get(name).is_some_and(|retry| retry.at_us > now_us)
    }

    /// A node failed for a reason that may pass: it is tried again, later each time, until somebody cancels
    /// the job.
    pub(super) fn postpone(&mut self, key: &TaskKey, fault: &TaskFault, now_us: u64) {
        let TaskId::Node(name) = &key.task else { return };
        self.count_failure(name, fault, now_us);
        self.apply(&key.task, &TaskEvent::Retried, now_us);
    }

    /// What a node came to nothing at may be tried again after a pause.
    pub(super) fn count_failure(&mut self, node: &NodeName, fault: &TaskFault, now_us: u64) {
        let failures = self.state.retries.get(node).map_or(1, |r| r.failures.saturating_add(1));
        let (at_us, code, reason) = (now_us + pause_us(failures), fault.code, fault.reason.clone());
        self.state.retries.insert(node.clone(), Retry { failures, at_us, code, reason });
        self.changes.job_state = true;
    }

    /// The order behind a snapshot that is leased.
    pub(super) fn snapshot_order(&self, id: &TaskId) -> Option<Effect> {
        let task = self.tasks.get(id)?;
        let TrainingTaskState::Leased { holder: Holder::Shards, attempt } = task.state else { return None };
        let key = self.key(id.clone(), attempt);
        (task.body == TaskBody::Snapshot).then_some(Effect::Snapshot { key, version: self.state.closed })
    }

    /// The active worker with the fewest tasks in hand.
    fn least_loaded_worker(&self) -> Option<Incarnation> {
        self.active().min_by_key(|w| self.leased_to(*w).len())
    }
}
