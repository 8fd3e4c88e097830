//! Values that were lost: the tasks that gave them run again, and before them those that gave what they take
//! and is gone by now. Ray calls it the reconstruction of objects from their lineage.
//!
//! Whoever has begun with such a value, or may have, is left alone: it has the value, or finds out as well
//! that it is lost.

use std::collections::BTreeSet;

use super::{graph::EdgeKind, job::TaskJob, settling::End};
use crate::{
    core::Assignee,
    fault_code::FaultCode,
    ids::ContentDigest,
    tasks::{Failure, FailureCause, LostValues, TaskState, Work},
};

/// Code of what happened to a task whose value was lost.
const VALUE_LOST: FaultCode = FaultCode::new("E649");
/// Times that the value of a task may be lost. What loses it more often than that will do so again.
const MOST_LOSSES: u8 = 5;

/// Whether a task in this state waits for nothing any more of one that is made again and that it follows so:
/// the order was kept when that was done before, and who has begun had its value.
pub(super) fn is_past(state: TaskState, kind: EdgeKind) -> bool {
    let has_begun = matches!(state, TaskState::Leased | TaskState::Training | TaskState::Continued);
    kind == EdgeKind::After || kind != EdgeKind::Continue && has_begun
}

/// Whether a task in this state waits for an `input` that it follows so, and that is made `again` or not.
pub(super) fn is_awaited(input: TaskState, again: bool, state: TaskState, kind: EdgeKind) -> bool {
    let is_nothing_to_it = input.is_final() || again && is_past(state, kind);
    !is_nothing_to_it
}

impl TaskJob {
    /// A task could not begin because arguments of it are on none of the shards. Where they can be made
    /// again, it waits for that; the attempt has failed otherwise. Cost O(tasks that run again, with
    /// their edges).
    pub(super) fn arguments_lost(&mut self, task: u32, by: &Assignee, lost: LostValues, now_us: u64) {
        let LostValues { digests, mut failure } = lost;
        let digests: BTreeSet<ContentDigest> = digests.into_iter().collect();
        let record = self.graph.record(task);
        let is_lost = |input: &u32| {
            let given = self.values.kept(*input).and_then(|given| given.value.blob());
            given.is_some_and(|blob| digests.contains(&blob.digest))
        };
        let inputs: BTreeSet<u32> = record.arguments_of().filter(is_lost).collect();
        let is_its_own = record.blobs().any(|blob| digests.contains(&blob.digest));
        // Somebody else may have found it first.
        let is_known = !inputs.is_empty() || record.arguments_of().any(|input| self.is_made_again(input));
        if is_its_own || !is_known {
            return self.attempt_failed(task, by, failure, now_us);
        }
        match self.lineage(&inputs) {
            Ok(again) => {
                for input in inputs {
                    self.note_attempts(input).losses += 1;
                }
                self.note_attempts(task);
                self.give_back_followers(task);
                self.graph.set_state(task, TaskState::Waiting);
                self.run_again(&again, by, now_us);
                self.put_back(task);
            }
            Err(why) => {
                failure.reason = format!("{}, and cannot be made again: {why}", failure.reason);
                self.attempt_failed(task, by, failure, now_us);
            }
        }
    }

    /// Whether a task was done, and its value lost, at least once.
    pub(super) fn is_made_again(&self, task: u32) -> bool {
        self.faults.get(&task).is_some_and(|faults| faults.again)
    }

    /// A task is in nobody's hands: it waits for what it needs, or can be given out. While it was, that may
    /// have begun to be made again, and may have failed.
    pub(super) fn put_back(&mut self, task: u32) {
        self.graph.set_state(task, TaskState::Waiting);
        let gives_nothing =
            |input: u32| matches!(self.graph.state(input), TaskState::Failed | TaskState::Skipped);
        if self.graph.slot(task).takes_values() && self.graph.record(task).values_of().any(gives_nothing) {
            return self.settle(task, End::Nothing(TaskState::Skipped));
        }
        self.graph.slot_mut(task).unmet = self.open_inputs(task);
        self.ready_if_met(task);
    }

    /// How many ends a task that has not begun waits for.
    pub(super) fn open_inputs(&self, task: u32) -> u32 {
        let (record, state) = (self.graph.record(task), self.graph.state(task));
        let awaits =
            |input: &u32, kind| is_awaited(self.graph.state(*input), self.is_made_again(*input), state, kind);
        let arguments = record.arguments_of().filter(|input| awaits(input, EdgeKind::Value)).count();
        let after = record.after.iter().filter(|input| awaits(input, EdgeKind::After)).count();
        (arguments + after) as u32
    }

    /// The tasks that have to run again so that these give their values once more, or why they cannot.
    fn lineage(&self, lost: &BTreeSet<u32>) -> Result<BTreeSet<u32>, String> {
        for &task in lost {
            let losses = self.faults.get(&task).map_or(0, |faults| faults.losses);
            if losses >= MOST_LOSSES {
                return Err(format!(
                    "the value of task {} was lost {losses} times before",
                    self.display(task)
                ));
            }
        }
        let (mut again, mut open) = (BTreeSet::new(), Vec::from_iter(lost.iter().copied()));
        while let Some(task) = open.pop() {
            if self.graph.state(task) != TaskState::Done || again.contains(&task) {
                continue;
            }
            again.insert(task);
            let continues = self.graph.followers(task).filter(|(_, kind)| *kind == EdgeKind::Continue);
            open.extend(continues.map(|(parent, _)| parent));
            if let Some(child) = self.graph.continued_by(task) {
                open.push(child);
                continue;
            }
            self.check_runs_again(task)?;
            let record = self.graph.record(task);
            open.extend(record.arguments_of().filter(|input| self.values.kept(*input).is_none()));
        }
        Ok(again)
    }

    fn check_runs_again(&self, task: u32) -> Result<(), String> {
        let slot = self.graph.slot(task);
        let class = &self.class_of(task).class;
        let why = if matches!(class.work, Work::Train(_)) {
            "is a training"
        } else if class.rules.crashes == 0 {
            "has no `crash_retries`, and so is not begun again"
        } else if slot.takes_blobs() {
            "had large arguments, which were removed when it had ended"
        } else if slot.attempts == u16::MAX {
            "was tried too often"
        } else {
            return Ok(());
        };
        Err(format!("task {} {why}", self.display(task)))
    }

    /// Tasks that are done are to be done once more, and what has not begun and takes their values waits for
    /// that.
    fn run_again(&mut self, again: &BTreeSet<u32>, by: &Assignee, now_us: u64) {
        for &task in again {
            self.outbox.released.extend(self.values.remove(task));
            // Before any follower ends: with the last one of them a value would go that is still here.
            self.graph.record(task).arguments_of().for_each(|input| self.values.add_use(input));
            let faults = self.note_attempts(task);
            faults.again = true;
            // What its first run needed says nothing of this one.
            (faults.crashes, faults.errors, faults.stops) = (0, 0, 0);
            (faults.avoided, faults.others_first_until_us) = (Vec::new(), 0);
            self.graph.slot_mut(task).unmet = 0;
            if let Some(child) = self.graph.continued_by(task) {
                self.continued.insert(task, child);
                self.graph.set_state(task, TaskState::Continued);
                continue;
            }
            self.graph.set_state(task, TaskState::Waiting);
            let reason = "its value is on none of the shards any more: it runs again".to_owned();
            let lost = Failure { cause: FailureCause::Worker, code: VALUE_LOST, reason };
            let by = self.last_runs.of(task).map_or_else(|| by.clone(), |run| Assignee::Worker(run.worker));
            self.record_failed(task, &by, &lost, now_us);
            self.note_attempts(task).last = Some(lost);
        }
        for &task in again {
            let followers: Vec<(u32, EdgeKind)> = self.graph.followers(task).collect();
            for (follower, kind) in followers {
                if kind.takes_value() && !again.contains(&follower) {
                    self.wait_for_one_more(follower);
                }
            }
        }
        for &task in again {
            if self.graph.state(task) == TaskState::Waiting {
                self.graph.slot_mut(task).unmet = self.open_inputs(task);
                self.ready_if_met(task);
            }
        }
    }

    /// A task that has not begun waits for one that is to be done again.
    fn wait_for_one_more(&mut self, task: u32) {
        match self.graph.state(task) {
            TaskState::Waiting | TaskState::Backoff => {}
            TaskState::Ready => {
                self.clear_queue_deadline(task);
                self.note_attempts(task);
                let class = self.graph.slot(task).class;
                self.class_mut(class).alone.remove(&task);
                self.trainings.ready.remove(&task);
                self.graph.set_state(task, TaskState::Waiting);
            }
            _ => return,
        }
        self.graph.slot_mut(task).unmet += 1;
    }
}
