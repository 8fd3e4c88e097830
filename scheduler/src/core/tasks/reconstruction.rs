//! Values that were lost: the tasks that gave them run again, and before them those that gave what they take and is gone by now. Ray
//! calls it the reconstruction of objects from their lineage.

use std::collections::{BTreeMap, BTreeSet};

use super::{graph::EdgeKind, job::TaskJob};
use crate::{
    core::Assignee,
    fault_code::FaultCode,
    tasks::{Failure, FailureCause, LostValues, TaskState, Work},
};

/// Code of what happened to a task whose value was lost.
const VALUE_LOST: FaultCode = FaultCode::new("E649");
/// Times that the value of a task may be lost. What loses it more often than that will do so again.
const MOST_LOSSES: u8 = 5;

impl TaskJob {
    /// A task could not begin because arguments of it are on none of the shards. Where they can be made again, it waits for that; the
    /// attempt has failed otherwise. Cost O(tasks that run again, with their edges), and O(tasks) once.
    pub(super) fn arguments_lost(&mut self, task: u32, by: &Assignee, lost: LostValues, now_us: u64) {
        let LostValues { digests, mut failure } = lost;
        let digests: BTreeSet<&str> = digests.iter().map(String::as_str).collect();
        let is_lost = |input: &u32| {
            let given = self.values.get(*input);
            given.blob().is_some_and(|blob| digests.contains(blob.digest.as_str()))
        };
        let inputs: Vec<u32> = self.graph.record(task).arguments_of().filter(is_lost).collect();
        match self.lineage(&inputs) {
            Ok(again) if !again.is_empty() => {
                self.wait_again(task);
                self.run_again(&again, by, now_us);
            }
            Ok(_) => self.attempt_failed(task, by, failure, now_us),
            Err(why) => {
                failure.reason = format!("{}, and cannot be made again: {why}", failure.reason);
                self.attempt_failed(task, by, failure, now_us);
            }
        }
    }

    /// The tasks that have to run again so that these give their values once more, or why they cannot.
    fn lineage(&self, lost: &[u32]) -> Result<BTreeSet<u32>, String> {
        if lost.is_empty() {
            return Ok(BTreeSet::new());
        }
        let children = self.graph.continuations();
        let (mut again, mut open) = (BTreeSet::new(), lost.to_vec());
        while let Some(task) = open.pop() {
            if self.graph.state(task) != TaskState::Done || again.contains(&task) {
                continue;
            }
            self.check_runs_again(task, &children)?;
            again.insert(task);
            let continued =
                self.graph.followers(task).filter(|(_, kind)| *kind == EdgeKind::Continue).map(|(f, _)| f);
            open.extend(continued);
            match children.get(&task) {
                Some(child) => open.push(*child),
                None => {
                    let record = self.graph.record(task);
                    open.extend(record.arguments_of().filter(|input| self.values.kept(*input).is_none()));
                }
            }
        }
        Ok(again)
    }

    fn check_runs_again(&self, task: u32, children: &BTreeMap<u32, u32>) -> Result<(), String> {
        let slot = self.graph.slot(task);
        let losses = self.faults.get(&task).map_or(0, |faults| faults.losses);
        if losses >= MOST_LOSSES || slot.attempts == u16::MAX {
            return Err(format!("the value of task {} was lost {losses} times before", self.display(task)));
        }
        if children.contains_key(&task) {
            // What it gives is what another one gives.
            return Ok(());
        }
        if matches!(self.class_of(task).class.work, Work::Train(_)) {
            return Err(format!("task {} is a training", self.display(task)));
        }
        if self.class_of(task).class.rules.crashes == 0 {
            let name = self.display(task);
            return Err(format!("task {name} has no `crash_retries`, and so is not begun again"));
        }
        if slot.takes_blobs() {
            let name = self.display(task);
            return Err(format!("the large arguments of task {name} were removed when it had ended"));
        }
        Ok(())
    }

    /// Tasks that are done are to be done once more, and what has not ended and follows them waits for that.
    fn run_again(&mut self, again: &BTreeSet<u32>, by: &Assignee, now_us: u64) {
        let children = self.graph.continuations();
        for &task in again {
            self.outbox.released.extend(self.values.forget(task));
            let state = match children.get(&task) {
                Some(&child) => {
                    self.continued.insert(task, child);
                    TaskState::Continued
                }
                None => {
                    let reason = "its value is on none of the shards any more: it runs again".to_owned();
                    let lost = Failure { cause: FailureCause::Worker, code: VALUE_LOST, reason };
                    self.record_failed(task, by, &lost, now_us);
                    self.note_attempts(task).last = Some(lost);
                    TaskState::Waiting
                }
            };
            self.graph.set_state(task, state);
            // Before any follower ends: with the last one of them a value would go that is still here.
            self.graph.record(task).arguments_of().for_each(|input| self.values.add_use(input));
            self.note_attempts(task).losses += 1;
        }
        for &task in again {
            let followers: Vec<(u32, EdgeKind)> = self.graph.followers(task).collect();
            for (follower, kind) in followers {
                if kind != EdgeKind::Continue && !again.contains(&follower) {
                    self.wait_for_one_more(follower, now_us);
                }
            }
        }
        // One of them may have been the last one that somebody waited for, canceled, and have ended the job.
        if !self.is_running() {
            return;
        }
        for &task in again {
            let record = self.graph.record(task);
            let unmet = record.inputs().filter(|input| !self.graph.state(*input).is_final()).count();
            self.graph.slot_mut(task).unmet = unmet as u32;
            self.ready_if_met(task);
        }
    }

    /// A task that has not ended waits for one that is to be done again. Who runs it may have lost the same value: it is taken back.
    fn wait_for_one_more(&mut self, task: u32, now_us: u64) {
        match self.graph.state(task) {
            state if state.is_final() => return,
            TaskState::Leased => {
                self.recall(task);
                self.wait_again(task);
                if self.is_task_canceling(task) {
                    return self.end_canceled(task, now_us);
                }
            }
            TaskState::Ready => {
                self.clear_queue_deadline(task);
                let class = self.graph.slot(task).class;
                self.class_mut(class).alone.remove(&task);
                self.trainings.ready.remove(&task);
                self.graph.set_state(task, TaskState::Waiting);
            }
            _ => {}
        }
        self.graph.slot_mut(task).unmet += 1;
    }
}
