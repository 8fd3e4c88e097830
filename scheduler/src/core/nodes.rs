//! The nodes that the user wrote: when training is over, what follows, and when the job is done.

use super::{
    io::Effect,
    job::Job,
    state::{Phase, Standing, TaskBody},
};
use crate::{
    graph::{Holder, TaskEvent, TaskId, TaskState},
    ids::Incarnation,
};

impl Job {
    /// Everything that follows from the present state; called after every input.
    pub(super) fn advance(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        if !matches!(self.central.phase, Phase::Running) {
            return;
        }
        let train = TaskId::Node(self.train_node().clone());
        match self.tasks.get(&train).map(|t| &t.state) {
            Some(TaskState::Ready) => {
                self.apply(&train, &TaskEvent::Leased { holder: Holder::Planner }, now_us);
            }
            Some(TaskState::Leased { .. }) => {}
            _ => return self.run_nodes(now_us, fx),
        }
        self.grant(now_us, fx);
        self.end_when_exhausted(now_us, fx);
        if self.is_trained() {
            self.central.trained_us = Some(now_us);
            self.apply(&train, &TaskEvent::Finished { attempt: 1 }, now_us);
            self.event("trained", now_us, vec![("barriers", self.central.counters.barriers.to_string())]);
            self.node_done(&train, now_us);
            self.run_nodes(now_us, fx);
        }
    }

    /// Every sample is accounted for and the last barrier is closed.
    fn is_trained(&self) -> bool {
        self.central.cursor.is_exhausted()
            && self.spans.values().all(|s| s.is_closed())
            && self.members.values().all(|m| match m.standing {
                Standing::Active => m.outstanding() == 0,
                Standing::Sealing { .. } => false,
                Standing::Gone => true,
            })
    }

    /// Tells the followers of a node that it is done.
    pub(super) fn node_done(&mut self, id: &TaskId, now_us: u64) {
        let followers: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| t.control.contains(id)).map(|(id, _)| id.clone()).collect();
        for follower in followers {
            self.apply(&follower, &TaskEvent::InputDone, now_us);
        }
    }

    fn run_nodes(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        let ready: Vec<(TaskId, TaskBody)> = self
            .tasks
            .iter()
            .filter(|(_, t)| t.state == TaskState::Ready)
            .map(|(id, t)| (id.clone(), t.body.clone()))
            .collect();
        for (id, body) in ready {
            match body {
                TaskBody::Evaluate => {
                    let Some(worker) = self.idlest() else { continue };
                    self.apply(&id, &TaskEvent::Leased { holder: Holder::Worker(worker) }, now_us);
                    if let Some(assignment) = self.assignment(&id) {
                        fx.push(Effect::Assign { worker, assignment });
                    }
                }
                TaskBody::Snapshot => {
                    self.apply(&id, &TaskEvent::Leased { holder: Holder::Shards }, now_us);
                    fx.extend(self.snapshot_order(&id));
                }
                TaskBody::Train | TaskBody::Barrier | TaskBody::Clock | TaskBody::Iteration { .. } => {}
            }
        }
        if self.tasks.values().filter(|t| t.body.is_node()).all(|t| t.state == TaskState::Done) {
            self.end(Phase::Done, now_us, fx);
        }
    }

    /// The order behind a snapshot that is leased.
    pub(super) fn snapshot_order(&self, id: &TaskId) -> Option<Effect> {
        let task = self.tasks.get(id)?;
        let TaskState::Leased { holder: Holder::Shards, attempt } = task.state else { return None };
        let key = self.key(id.clone(), attempt);
        (task.body == TaskBody::Snapshot).then_some(Effect::Snapshot { key, version: self.central.closed })
    }

    /// The active worker with the fewest tasks in hand.
    fn idlest(&self) -> Option<Incarnation> {
        self.active().min_by_key(|w| self.leased_to(*w).len())
    }
}
