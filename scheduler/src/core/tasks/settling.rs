//! What follows from the end of a task: for its value, for those that need it, and for those that need them.

use super::{graph::EdgeKind, job::TaskJob, reconstruction::is_past, values::ValueWithPreview};
use crate::{
    core::Effect,
    tasks::{NewTask, TaskEnd, TaskState, Value, Work},
};

/// The end of one task, as those that follow it see it.
pub(super) enum End {
    Value(ValueWithPreview),
    /// It failed for good or was skipped: there will be no value.
    Nothing(TaskState),
}

impl TaskJob {
    /// A task is done, and gives this.
    pub(super) fn complete_task(&mut self, task: u32, given: ValueWithPreview) {
        self.settle(task, End::Value(given));
    }

    /// A task has ended for good: tells those that follow, and those that follow them.
    pub(super) fn settle(&mut self, task: u32, end: End) {
        let mut open = vec![(task, end)];
        while let Some((task, end)) = open.pop() {
            if self.graph.state(task).is_final() {
                continue;
            }
            let state = match &end {
                End::Value(_) => TaskState::Done,
                End::Nothing(state) => *state,
            };
            if self.graph.state(task) == TaskState::Continued && state != TaskState::Skipped {
                self.continued.remove(&task);
            }
            self.leave_backoff(task);
            self.graph.set_state(task, state);
            self.use_up_inputs(task);
            if matches!(end, End::Nothing(_)) && self.graph.slot(task).takes_outcomes() {
                self.outbox.ended_takers.push(task);
            }
            let again = self.is_made_again(task);
            let (uses, stays) = self.uses(task);
            let followers: Vec<(u32, EdgeKind)> = self.graph.followers(task).collect();
            let goes_to =
                |f: u32, kind: EdgeKind| kind == EdgeKind::Continue && !self.graph.state(f).is_final();
            let moves_on = followers.iter().any(|(f, kind)| goes_to(*f, *kind));
            for (follower, kind) in followers {
                match (kind, &end) {
                    (EdgeKind::Continue, End::Value(given)) => {
                        open.push((follower, End::Value(given.clone())));
                    }
                    _ if again && is_past(self.graph.state(follower), kind) => {}
                    (EdgeKind::Continue, End::Nothing(_)) | (EdgeKind::Value, End::Nothing(_)) => {
                        // It waits, on its worker, for what will not come; that drops what waits for it
                        // there.
                        if self.graph.state(follower) == TaskState::Leased {
                            self.give_back_followers(follower);
                            self.recall(follower);
                        }
                        open.push((follower, End::Nothing(TaskState::Skipped)));
                    }
                    (EdgeKind::Value, End::Value(_)) | (EdgeKind::After | EdgeKind::Outcome, _) => {
                        self.input_ended(follower);
                    }
                }
            }
            if let End::Value(given) = end {
                self.keep(task, given, uses, stays, moves_on);
            }
        }
    }

    /// Keeps what a task gave, if somebody may still ask for it.
    fn keep(&mut self, task: u32, mut given: ValueWithPreview, uses: u32, stays: bool, moves_on: bool) {
        match stays {
            true if given.preview.is_some() && !given.value.is_empty() => self.changes.note_result(task),
            true => {}
            // Only results are looked at.
            false => given.preview = None,
        }
        match given.value {
            _ if stays || uses > 0 => self.values.insert(task, given, uses, stays),
            // Whoever would have taken it has ended before. The task that it continued may have kept the
            // same.
            value if !moves_on => self.release_unused(Some(&value), &[]),
            _ => {}
        }
    }

    /// How many tasks will still take the value of one that is done, and whether it stays when they have.
    pub(super) fn uses(&self, task: u32) -> (u32, bool) {
        let (mut uses, mut taken) = (0, false);
        for (follower, kind) in self.graph.followers(task) {
            taken |= kind != EdgeKind::After;
            uses += u32::from(kind.takes_value() && !self.graph.state(follower).is_final());
        }
        // That of a training is small, and its work is great.
        let class = &self.class_of(task).class;
        let trains = matches!(class.work, Work::Train(_));
        let is_wanted = self.graph.slot(task).is_named() || class.rules.keep_value || trains;
        (uses, is_wanted || !taken)
    }

    pub(super) fn use_up_inputs(&mut self, task: u32) {
        if self.graph.slot(task).takes_values() {
            for input in self.graph.record(task).arguments_of() {
                self.outbox.released.extend(self.values.use_up(input));
            }
        }
        self.release_arguments(task);
    }

    /// Nobody needs the large arguments of a task any more: each has a salt of its own, so that no other task
    /// names its blob.
    pub(super) fn release_arguments(&mut self, task: u32) {
        if self.graph.slot(task).takes_blobs() {
            let record = self.graph.record(task);
            self.outbox.released.extend(record.blobs().map(|blob| blob.digest));
        }
    }

    /// What came with an end that does not count, or counts in part: nobody will ever name the value that was
    /// given, where it is large, nor the large arguments of tasks that are not added. One that is kept all the
    /// same stays.
    pub(super) fn release_unused(&mut self, given: Option<&Value>, not_added: &[NewTask]) {
        let given = given.and_then(Value::blob).map(|blob| blob.digest);
        let unused = given.into_iter().chain(not_added.iter().flat_map(NewTask::blobs));
        let unneeded = unused.filter(|digest| !self.values.holds(*digest));
        self.outbox.released.extend(unneeded);
    }

    /// The same of an attempt that the worker does not have. It may have been taken before: what the tasks that
    /// it added are called with stays. Or another worker has it under the same number, after a loss of the store.
    pub(super) fn release_late_value(&mut self, task: u32, end: &TaskEnd) {
        let slot = self.graph.slot(task);
        let may_be_given_again = !slot.state.is_final() && slot.attempts == end.attempt;
        if !may_be_given_again {
            self.release_unused(end.outcome.value(), &[]);
        }
    }

    /// Nobody sends the rest of the job, and no task of it runs.
    pub(super) fn release_all_arguments(&mut self, effects: &mut Vec<Effect>) {
        (0..self.graph.len()).for_each(|task| self.release_arguments(task));
        self.take_recalls(effects);
    }

    fn input_ended(&mut self, follower: u32) {
        let slot = self.graph.slot_mut(follower);
        slot.unmet = slot.unmet.saturating_sub(1);
        self.ready_if_met(follower);
    }
}
