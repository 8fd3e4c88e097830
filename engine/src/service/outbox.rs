//! Assignments of a worker whose reports are not committed yet, in the order in which they are to be done.
//!
//! A round of local steps is thousands of iterations, given together and reported together: every call costs
//! the same however many there are.

use std::collections::{BTreeMap, HashMap};

use syncline_scheduler::core::{Assignment, TaskKey};

/// Assignments in order, each once.
#[derive(Default)]
pub(super) struct Outbox {
    in_order: BTreeMap<u64, Assignment>,
    places: HashMap<TaskKey, u64>,
    next_place: u64,
}

impl Outbox {
    /// Adds one at the end, unless it is there.
    pub(super) fn push(&mut self, assignment: Assignment) {
        if self.contains(&assignment.key) {
            return;
        }
        self.places.insert(assignment.key.clone(), self.next_place);
        self.in_order.insert(self.next_place, assignment);
        self.next_place += 1;
    }

    pub(super) fn remove(&mut self, key: &TaskKey) {
        if let Some(place) = self.places.remove(key) {
            self.in_order.remove(&place);
        }
    }

    pub(super) fn contains(&self, key: &TaskKey) -> bool {
        self.places.contains_key(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Assignment> {
        self.in_order.values()
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        core::Work,
        graph::TaskId,
        ids::{Generation, Incarnation, RunId},
        samples::SampleRange,
    };

    use super::*;

    fn iteration(seq: u64) -> Assignment {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        let key = TaskKey { run, task: TaskId::Iteration { worker: Incarnation(1), seq }, attempt: 1 };
        let work = Work::Prepare { range: SampleRange { epoch: 0, start: 0, len: 1 } };
        Assignment { key, worker_number: 0, work }
    }

    fn all(outbox: &Outbox) -> Vec<Assignment> {
        outbox.iter().cloned().collect()
    }

    #[test]
    fn assignments_stay_in_the_order_in_which_they_came_each_once() {
        let mut outbox = Outbox::default();
        for seq in [3, 1, 2, 1] {
            outbox.push(iteration(seq));
        }
        assert_eq!(all(&outbox), [iteration(3), iteration(1), iteration(2)]);
        outbox.remove(&iteration(1).key);
        outbox.remove(&iteration(7).key);
        outbox.push(iteration(1));
        assert_eq!(all(&outbox), [iteration(3), iteration(2), iteration(1)]);
    }

    /// With a look at each of the others it would take minutes.
    #[test]
    fn a_round_of_two_hundred_thousand_iterations_is_given_and_settled_one_by_one() {
        let mut outbox = Outbox::default();
        (0..200_000).for_each(|seq| outbox.push(iteration(seq)));
        (0..200_000).rev().for_each(|seq| outbox.remove(&iteration(seq).key));
        assert!(outbox.iter().next().is_none() && outbox.places.is_empty());
    }
}
