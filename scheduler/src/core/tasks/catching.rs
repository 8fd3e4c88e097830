//! Failures that go on as outcomes: whether somebody takes them, so that the job goes on (ADR 62). That
//! follows from the graph, and from who can begin; which of them ended first makes no difference.

use std::collections::{BTreeSet, HashSet};

use super::{
    TaskJob, canceling_task::TASK_CANCELED, graph::EdgeKind, queue_limit::WAITED_TOO_LONG,
    reconstruction::is_past,
};
use crate::tasks::{OnFailure, TaskState};

impl TaskJob {
    /// Whether the outcome of a task that has failed, or of one that is skipped with it, goes to a task that
    /// takes it.
    fn is_caught(&self, failed: u32) -> bool {
        let noted =
            self.faults.get(&failed).map(|faults| &*faults.takers).filter(|takers| !takers.is_empty());
        match noted {
            Some(takers) => takers.iter().any(|taker| self.takes_outcomes(*taker)),
            None => self.takers(failed).into_iter().any(|taker| self.takes_outcomes(taker)),
        }
    }

    /// Notes who is to take the failure of a task that fails, if anybody does; `false`: nobody. Of one that
    /// was made again it shows later no more who has begun with its failure, and who had its value
    /// before.
    pub(super) fn catch(&mut self, task: u32) -> bool {
        let takers = self.takers(task);
        let is_caught = takers.iter().any(|taker| self.takes_outcomes(*taker));
        if is_caught && self.is_made_again(task) {
            self.note_attempts(task).takers = takers;
        }
        is_caught
    }

    /// The tasks to which the outcome goes of a task that fails or has failed, or of one that is skipped with
    /// it. Cost O(tasks that are skipped, with their edges).
    fn takers(&self, task: u32) -> Vec<u32> {
        let (mut lost, mut open, mut takers) = (HashSet::from([task]), vec![task], Vec::new());
        while let Some(task) = open.pop() {
            let again = self.is_made_again(task);
            for (follower, kind) in self.graph.followers(task) {
                let state = self.graph.state(follower);
                let is_lost = !state.is_final() || state == TaskState::Skipped;
                match kind {
                    _ if again && is_past(state, kind) => {}
                    EdgeKind::Value | EdgeKind::Continue if is_lost && lost.insert(follower) => {
                        open.push(follower);
                    }
                    // It took what there was before.
                    EdgeKind::Outcome if again && state.is_final() => {}
                    EdgeKind::Outcome => takers.push(follower),
                    EdgeKind::Value | EdgeKind::Continue | EdgeKind::After => {}
                }
            }
        }
        takers.retain(|taker| !lost.contains(taker));
        takers
    }

    /// A task whose failure is to fail the job, because none of those that were to take it does: `enders`
    /// have ended and gave nothing.
    pub(super) fn uncaught(&self, enders: &[u32]) -> Option<u32> {
        let take_nothing = enders.iter().filter(|task| !self.takes_outcomes(**task));
        let mut open: Vec<u32> = take_nothing
            .flat_map(|task| self.graph.record(*task).outcomes_of().collect::<Vec<_>>())
            .collect();
        let (mut seen, mut failed) = (HashSet::new(), BTreeSet::new());
        while let Some(task) = open.pop() {
            if !seen.insert(task) {
                continue;
            }
            match self.graph.state(task) {
                TaskState::Failed if self.class_of(task).class.rules.on_failure == OnFailure::FailJob => {
                    failed.insert(task);
                }
                TaskState::Skipped => {
                    open.extend(self.continued.get(&task));
                    open.extend(self.graph.record(task).values_of());
                }
                _ => {}
            }
        }
        failed.into_iter().find(|task| !self.is_caught(*task))
    }

    /// Whether a task may begin with the outcomes that it takes, or has. One that is canceled deals with
    /// nothing, wherever it was.
    fn takes_outcomes(&self, task: u32) -> bool {
        match self.graph.state(task) {
            TaskState::Failed => {
                let last = self.faults.get(&task).and_then(|faults| faults.last.as_ref());
                last.is_none_or(|failure| ![WAITED_TOO_LONG, TASK_CANCELED].contains(&failure.code))
            }
            // What it lacks is why, unless it has begun and had nothing to give, or another one gives for it.
            TaskState::Skipped => self.continued.contains_key(&task) || self.nothing_given(task).is_none(),
            TaskState::Canceled => false,
            _ => true,
        }
    }
}
