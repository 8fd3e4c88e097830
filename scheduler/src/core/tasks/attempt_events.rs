//! The history of a task's attempts in the events of its job: each that failed, and the one that was done
//! after such.
//!
//! The stream of events keeps the newest, so a graph of which everything fails must not fill it many times
//! over in one commit.

use super::TaskJob;
use crate::{
    core::{Assignee, Happening, TaskFault},
    tasks::Failure,
};

/// Most ends of attempts that one commit tells of.
const MAX_PER_COMMIT: u32 = 50;

impl TaskJob {
    /// An attempt at a task has failed.
    pub(super) fn record_failed(&mut self, task: u32, by: &Assignee, failure: &Failure, now_us: u64) {
        let fault = TaskFault { code: failure.code, reason: failure.reason.clone() };
        self.tell_of_attempt(task, now_us, |task, attempt| {
            let by = by.clone();
            Happening::AttemptFailed { task, attempt, by, fault }
        });
    }

    /// A task gives something: told if attempts at it have failed before.
    pub(super) fn record_done(&mut self, task: u32, by: &Assignee, now_us: u64) {
        if self.faults.get(&task).is_some_and(|faults| faults.last.is_some()) {
            self.tell_of_attempt(task, now_us, |task, attempt| {
                let by = by.clone();
                Happening::AttemptDone { task, attempt, by }
            });
        }
    }

    /// Tells how the newest attempt at a task has ended, unless too many were told of already.
    fn tell_of_attempt(&mut self, task: u32, now_us: u64, ended: impl FnOnce(String, u16) -> Happening) {
        if self.changes.attempts_told >= MAX_PER_COMMIT {
            return;
        }
        self.changes.attempts_told += 1;
        let attempt = self.graph.slot(task).attempts;
        self.tell(ended(self.display(task), attempt), now_us);
    }
}
