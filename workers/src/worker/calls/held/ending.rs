//! How attempts that were running end here.

use std::{collections::HashMap, mem, sync::Arc};

use syncline_scheduler::{ids::SubmissionId, tasks::Bytes};

use super::{EndedKey, HeldTasks, JobTasks, State, drop_waiters, fill};

impl HeldTasks {
    /// An attempt that a thread had has ended with this value, or without one. `false`: it was given up
    /// before, and nobody wants to hear of it.
    pub(in super::super) fn end(&mut self, ended: &EndedKey, value: Option<Bytes>) -> bool {
        let Some(tasks) = leave_running(&mut self.jobs, ended, State::Ended(value.clone())) else {
            return false;
        };
        match value {
            Some(value) => {
                let held = tasks.get_mut(&ended.task);
                let waiters = held.map(|held| mem::take(&mut held.waiters)).unwrap_or_default();
                for (task, serial) in waiters {
                    fill(tasks, task, serial, ended.task, &value, &mut self.ready);
                }
            }
            None => drop_waiters(tasks, ended.task),
        }
        true
    }

    /// The same of one whose function has done nothing yet: it never began.
    pub(in super::super) fn end_unbegun(&mut self, ended: &EndedKey) -> bool {
        let Some(tasks) = leave_running(&mut self.jobs, ended, State::EndedUnbegun) else { return false };
        drop_waiters(tasks, ended.task);
        true
    }
}

/// Puts an attempt that a thread has into the state in which it has ended; `None` if none has it any more. One
/// whose function was not called never began, however it ended.
fn leave_running<'a>(
    jobs: &'a mut HashMap<Arc<SubmissionId>, JobTasks>,
    ended: &EndedKey,
    state: State,
) -> Option<&'a mut JobTasks> {
    let tasks = jobs.get_mut(&ended.submission)?;
    let held = tasks.get_mut(&ended.task).filter(|held| held.serial == ended.serial)?;
    held.state = match held.state {
        State::Fetching => State::EndedUnbegun,
        State::Running => state,
        _ => return None,
    };
    Some(tasks)
}
