//! Workers that come last for a task, because it came back from them: it failed there by the machine, or
//! could not begin (ADR 10). It waits for another worker that could have it, however busy that is: for half a
//! minute, or for as long as there is one where the next attempt that fails so is the last.

use super::{
    job::{RetryState, TaskJob},
    leasing::{Matching, TaskAssigner},
    ready_class::ReadyClass,
    worker_load::WorkerLoad,
};
use crate::{
    core::panics::Handling,
    ids::Incarnation,
    tasks::{ClassIndex, FailureCause, Outcome, TaskEnd, TaskState},
};

/// For how long a task waits for others. What the machine lacked may be there again, and they may be busy for
/// hours.
pub(super) const OTHERS_FIRST_US: u64 = 30_000_000;
/// Most workers that one task avoids, those from which it came back last.
const MOST_AVOIDED: usize = 16;

/// How a worker stands in the line for a task that came back from some, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Nothing speaks against it.
    First,
    /// What it ran last came back from it.
    Later,
    /// The task came back from it.
    Last,
}

/// Whether an attempt failed by its worker's machine, or could not begin there.
pub(super) fn came_back(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::NotBegun => true,
        Outcome::Failed(failure) => failure.cause == FailureCause::Worker,
        _ => false,
    }
}

impl RetryState {
    /// From when on the task waits for a worker in vain, if nobody takes it that comes first.
    pub(super) fn wait_for_others_from(&mut self, ready_us: u64) {
        if !self.avoided.is_empty() {
            self.others_first_until_us = ready_us + OTHERS_FIRST_US;
        }
    }
}

impl TaskJob {
    /// Notes that the current attempt at a task came back from its worker; `false` if that one has another
    /// attempt, or none.
    pub(super) fn avoid(&mut self, worker: Incarnation, end: &TaskEnd, now_us: u64) -> bool {
        let task = end.task.0;
        let has_it = self.leases.get(&worker).is_some_and(|tasks| tasks.contains(&task))
            && self.graph.slot(task).attempts == end.attempt;
        if has_it {
            let faults = self.note_attempts(task);
            faults.avoided.retain(|other| *other != worker);
            if faults.avoided.len() == MOST_AVOIDED {
                faults.avoided.remove(0);
            }
            faults.avoided.push(worker);
            faults.wait_for_others_from(now_us);
        }
        has_it
    }

    /// The workers from which a task came back.
    pub(super) fn avoided(&self, task: u32) -> &[Incarnation] {
        self.faults.get(&task).map_or(&[], |faults| &faults.avoided)
    }

    /// How a worker that has this load stands in the line for a task.
    pub(super) fn standing(&self, task: u32, (worker, load): (Incarnation, &WorkerLoad)) -> Standing {
        match self.avoided(task).contains(&worker) {
            true => Standing::Last,
            false if load.returned_in_a_row > 0 => Standing::Later,
            false => Standing::First,
        }
    }

    /// Whether a task need not wait for others any more.
    pub(super) fn has_waited_for_others(&self, task: u32, now_us: u64) -> bool {
        let Some(faults) = self.faults.get(&task) else { return true };
        let crashes = self.class_of(task).class.rules.crashes;
        let is_last_attempt = faults.crashes > 0 && faults.crashes >= crashes;
        !is_last_attempt && now_us >= faults.others_first_until_us
    }

    /// The first task of a class that came back from a worker and that this one may have.
    pub(super) fn next_returned(&self, class: ClassIndex, worker: (Incarnation, &WorkerLoad)) -> Option<u32> {
        let returned = &self.class(class).returned;
        let may_have = |task: &u32| returned.last(*task) >= Some(self.standing(*task, worker));
        returned.in_turn().find(may_have)
    }
}

impl TaskAssigner {
    /// Something came back from a worker.
    pub(super) fn note_return(&mut self, worker: Incarnation, now_us: u64) {
        if let Some(load) = self.loads.get_mut(&worker) {
            load.returned_in_a_row += 1;
            load.returned_us = now_us;
        }
    }

    /// Something that a worker had did not come back from it.
    pub(super) fn note_run(&mut self, worker: Incarnation) {
        if let Some(load) = self.loads.get_mut(&worker) {
            load.returned_in_a_row = 0;
        }
    }

    /// How many calls in a row came back from a worker that takes one at a time for it.
    pub(super) fn returned_in_a_row(&self, worker: Incarnation, now_us: u64) -> Option<u32> {
        let load = self.loads.get(&worker).filter(|load| load.takes_one_at_a_time(now_us))?;
        Some(load.returned_in_a_row)
    }

    /// Whether a worker leaves a ready task to others.
    pub(super) fn comes_last(&self, job: &TaskJob, task: u32, worker: Incarnation) -> bool {
        let (returned, load) = (&job.class_of(task).returned, self.loads.get(&worker));
        let last = returned.last(task).zip(load);
        last.is_some_and(|(last, load)| job.standing(task, (worker, load)) > last)
    }

    /// Finds who may have the tasks that came back from workers. Cost O(1) while there are none.
    pub(super) fn line_up_returned(&mut self, matching: &mut Matching<'_>) {
        for ready in self.returned_classes.clone() {
            let _handling = Handling(&ready.job);
            let Some(job) = matching.jobs.get_mut(&ready.job).filter(|job| job.gives_out()) else {
                self.returned_classes.remove(&ready);
                continue;
            };
            for task in job.class_mut(ready.class).returned.begin_turn() {
                let mut last = self.last_standing(matching, &ready, task);
                if last == Standing::Last && self.avoid_newest_alone(matching, &ready, task) {
                    last = self.last_standing(matching, &ready, task);
                }
                let Some(job) = matching.jobs.get_mut(&ready.job) else { break };
                let is_ready = job.graph.state(task) == TaskState::Ready;
                let returned = &mut job.class_mut(ready.class).returned;
                if is_ready {
                    returned.set_last(task, last);
                } else {
                    returned.remove(task);
                }
            }
            if matching.jobs.get(&ready.job).is_none_or(|job| job.class(ready.class).returned.is_empty()) {
                self.returned_classes.remove(&ready);
            }
        }
    }

    /// The last in the line that may have a task: as the best of those that could have it if they had nothing
    /// else, or anybody.
    pub(super) fn last_standing(&self, matching: &Matching<'_>, ready: &ReadyClass, task: u32) -> Standing {
        let Some(job) = matching.jobs.get(&ready.job) else { return Standing::Last };
        if job.has_waited_for_others(task, matching.now_us) {
            return Standing::Last;
        }
        let mut best = Standing::Last;
        for (worker, load) in &self.loads {
            let standing = job.standing(task, (*worker, load));
            if standing < best && matching.could_have(*worker, ready) {
                best = standing;
            }
            if best == Standing::First {
                break;
            }
        }
        best
    }

    /// A task came back from all that could have it: they have it in turn. `false`: it came back from one
    /// alone, or need not wait.
    fn avoid_newest_alone(&self, matching: &mut Matching<'_>, ready: &ReadyClass, task: u32) -> bool {
        let Some(job) = matching.jobs.get_mut(&ready.job) else { return false };
        if job.has_waited_for_others(task, matching.now_us) || job.avoided(task).len() < 2 {
            return false;
        }
        let avoided = &mut job.note_attempts(task).avoided;
        avoided.drain(..avoided.len() - 1);
        matching.touched.insert(ready.job.clone());
        true
    }
}
