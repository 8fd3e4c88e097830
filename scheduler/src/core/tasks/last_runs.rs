//! Where tasks ran whose attempt has ended, and for how long: for people alone, who can do without it after a
//! change of engines.

use std::collections::{HashMap, VecDeque};

use crate::ids::Incarnation;

/// Tasks of one job of which it is kept, those whose attempt ended last.
const MAX_KEPT: usize = 10_000;

/// How the newest attempt at a task went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastRun {
    pub worker: Incarnation,
    /// Waiting not counted.
    pub run_us: u64,
    /// When its end was heard of, in epoch µs.
    pub ended_us: u64,
}

/// What is kept of the attempts of one job.
#[derive(Debug, Clone, Default)]
pub(super) struct LastRuns {
    runs: HashMap<u32, LastRun>,
    /// In the order in which they were noted first.
    order: VecDeque<u32>,
}

impl LastRuns {
    pub(super) fn note(&mut self, task: u32, run: LastRun) {
        if self.runs.insert(task, run).is_some() {
            return;
        }
        self.order.push_back(task);
        if self.order.len() > MAX_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }

    pub(super) fn of(&self, task: u32) -> Option<LastRun> {
        self.runs.get(&task).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_tasks_those_that_ended_last_are_known() {
        let mut runs = LastRuns::default();
        let run = |run_us| LastRun { worker: Incarnation(7), run_us, ended_us: 1 };
        for task in 0..=MAX_KEPT as u32 {
            runs.note(task, run(1));
            runs.note(task, run(2));
        }
        assert_eq!((runs.of(0), runs.of(1)), (None, Some(run(2))));
        assert_eq!((runs.runs.len(), runs.order.len()), (MAX_KEPT, MAX_KEPT));
    }
}
