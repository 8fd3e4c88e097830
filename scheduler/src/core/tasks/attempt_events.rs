//! The history of a task's attempts in the events of its job: each that failed, and the one that was done after such.
//!
//! The stream of events keeps the newest, so a graph of which everything fails must not fill it many times over in one commit.

use super::TaskJob;
use crate::{
    ids::{Incarnation, JobId},
    tasks::Failure,
};

/// Most ends of attempts that one commit tells of.
const MAX_PER_COMMIT: u32 = 50;

/// Who had an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Assignee {
    Worker(Incarnation),
    Training(JobId),
}

impl TaskJob {
    /// An attempt at a task has failed.
    pub(super) fn record_failed(&mut self, task: u32, by: &Assignee, failure: &Failure, now_us: u64) {
        let Failure { code, reason, .. } = failure;
        let why = vec![("code", code.clone()), ("reason", reason.clone())];
        self.record_ended("attempt_failed", task, by, why, now_us);
    }

    /// A task gives something: told if attempts at it have failed before.
    pub(super) fn record_done(&mut self, task: u32, by: &Assignee, now_us: u64) {
        if self.faults.get(&task).is_some_and(|faults| faults.last.is_some()) {
            self.record_ended("attempt_done", task, by, vec![], now_us);
        }
    }

    fn record_ended(
        &mut self,
        what: &'static str,
        task: u32,
        by: &Assignee,
        why: Vec<(&'static str, String)>,
        now_us: u64,
    ) {
        if self.changes.attempts_told >= MAX_PER_COMMIT {
            return;
        }
        self.changes.attempts_told += 1;
        let by = match by {
            Assignee::Worker(worker) => ("worker", worker.to_string()),
            Assignee::Training(job) => ("training", job.to_string()),
        };
        let attempt = self.graph.slot(task).attempts.to_string();
        let mut fields = vec![("task", self.display(task)), ("attempt", attempt), by];
        fields.extend(why);
        self.event(what, now_us, fields);
    }
}
