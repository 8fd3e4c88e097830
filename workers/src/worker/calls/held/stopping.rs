//! Attempts whose job is to end, and those that are given back.

use std::{collections::HashMap, sync::Arc};

use syncline_scheduler::{
    ids::SubmissionId,
    tasks::{Attempt, Attempts},
};

use super::{EndedKey, Held, HeldTasks, JobTasks, OrderId, State, drop_waiters};

impl HeldTasks {
    /// The function of an attempt is called now.
    pub(in super::super) fn function_begins(&mut self, attempt: &super::Attempt) {
        let held =
            self.jobs.get_mut(&attempt.group.submission).and_then(|held| held.get_mut(&attempt.order.task));
        if let Some(held) = held.filter(|held| held.serial == attempt.serial)
            && matches!(held.state, State::Fetching)
        {
            held.state = State::Running;
        }
    }

    /// Attempts that still fetch what their functions are called with.
    pub(in super::super) fn fetching(&self) -> Vec<OrderId> {
        let held = self.jobs.values().flat_map(HashMap::values);
        held.filter(|held| matches!(held.state, State::Fetching)).map(|held| held.serial).collect()
    }

    /// Everything whose function was called, ended or not, as far as it is still known here.
    pub(in super::super) fn begun(&self) -> Vec<Attempts> {
        let has_begun = |held: &Held| matches!(held.state, State::Running | State::Ended(_));
        let of = |(submission, held): (&Arc<SubmissionId>, &JobTasks)| {
            let begun = held.iter().filter(|(_, held)| has_begun(held));
            let tasks = begun.map(|(task, held)| Attempt { task: *task, attempt: held.attempt }).collect();
            Attempts { submission: SubmissionId::clone(submission), tasks }
        };
        self.jobs.iter().map(of).filter(|attempts| !attempts.tasks.is_empty()).collect()
    }

    /// Ends attempts whose job is to end, or that are asked back. Those that run are noted in `running`;
    /// those that have not begun never do, and are noted in `ended`, which is to be reported.
    pub(in super::super) fn stop(
        &mut self,
        stop: Attempts,
        running: &mut Vec<OrderId>,
        ended: &mut Vec<(EndedKey, u16)>,
    ) {
        let Some((submission, _)) = self.jobs.get_key_value(&stop.submission) else { return };
        let submission = submission.clone();
        let Some(held) = self.jobs.get_mut(&submission) else { return };
        for Attempt { task, attempt } in stop.tasks {
            let Some(it) = held.get_mut(&task).filter(|held| held.attempt == attempt) else { continue };
            match it.state {
                State::Fetching | State::Running => running.push(it.serial),
                State::Ended(_) | State::EndedUnbegun => {}
                State::Waiting { .. } | State::Ready | State::Dropped => {
                    it.state = State::EndedUnbegun;
                    let (submission, serial) = (submission.clone(), it.serial);
                    ended.push((EndedKey { submission, task, serial }, attempt));
                    drop_waiters(held, task);
                }
            }
        }
    }
}
