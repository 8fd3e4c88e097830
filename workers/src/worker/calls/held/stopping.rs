//! Attempts whose job is to end.

use syncline_scheduler::tasks::Attempts;

use super::{EndedKey, HeldTasks, OrderId, State, drop_waiters};
use crate::functions::JobKey;

impl HeldTasks {
    /// Ends attempts whose job is to end. Those that run are noted in `running`; those that have not begun never do, and are
    /// noted in `ended`, which is to be reported.
    pub(in super::super) fn stop(
        &mut self,
        stop: Attempts,
        running: &mut Vec<OrderId>,
        ended: &mut Vec<(EndedKey, u16)>,
    ) {
        let Attempts { job, nonce, tasks } = stop;
        let key = JobKey { job, nonce };
        let Some((job, _)) = self.jobs.get_key_value(&key) else { return };
        let job = job.clone();
        let Some(held) = self.jobs.get_mut(&key) else { return };
        for (task, attempt) in tasks {
            let Some(it) = held.get_mut(&task).filter(|held| held.attempt == attempt) else { continue };
            match it.state {
                State::Running => running.push(it.serial),
                State::Ended(_) => {}
                State::Waiting { .. } | State::Ready | State::Dropped => {
                    it.state = State::Ended(None);
                    let serial = it.serial;
                    ended.push((EndedKey { job: job.clone(), task, serial }, attempt));
                    drop_waiters(held, task);
                }
            }
        }
    }
}
