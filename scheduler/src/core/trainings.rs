//! All trainings: those of which something may still change, and those that are over, of which there may be
//! thousands. An input costs what it concerns: whoever gets hold of a training to change it has it looked at
//! behind the input, and for the next commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{job::Job, records::Phase};
use crate::ids::JobId;

/// By their ids.
#[derive(Debug, Clone, Default)]
pub(super) struct Trainings {
    live: BTreeMap<JobId, Job>,
    /// Over, and all of it committed.
    over: BTreeMap<JobId, Job>,
    /// Live ones that may have changed since it was seen to what follows.
    to_advance: Touched,
    /// Live ones that may have changed since the last commit.
    to_commit: Touched,
}

/// Trainings that somebody had in hand to change them.
#[derive(Debug, Clone, Default)]
struct Touched {
    /// All that are live, whatever else is named.
    all: bool,
    some: BTreeSet<JobId>,
}

/// Two are equal when all that can influence a later decision is: which of them have changed is nothing that
/// is stored.
impl PartialEq for Trainings {
    fn eq(&self, other: &Self) -> bool {
        self.live == other.live && self.over == other.over
    }
}

impl Trainings {
    pub(super) fn get(&self, id: &JobId) -> Option<&Job> {
        self.live.get(id).or_else(|| self.over.get(id))
    }

    /// One of them, to change it.
    pub(super) fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        match self.live.get_mut(id) {
            Some(job) => {
                self.to_advance.add(id);
                self.to_commit.add(id);
                Some(job)
            }
            None => self.over.get_mut(id),
        }
    }

    /// Takes a job in, and returns the one in whose place it stands.
    pub(super) fn insert(&mut self, job: Job) -> Option<Job> {
        let old = self.remove(job.id());
        self.to_advance.add(job.id());
        self.to_commit.add(job.id());
        self.live.insert(job.id().clone(), job);
        old
    }

    pub(super) fn remove(&mut self, id: &JobId) -> Option<Job> {
        self.live.remove(id).or_else(|| self.over.remove(id))
    }

    /// Those of which something may still change: all that are not over, in the order of their ids.
    pub(super) fn live(&self) -> impl Iterator<Item = &Job> {
        self.live.values()
    }

    /// Those that are not over, in the order of their ids, to change them. What follows costs something for
    /// each: it is for what happens now and then.
    pub(super) fn live_mut(&mut self) -> impl Iterator<Item = (&JobId, &mut Job)> {
        self.touch_all();
        self.live.iter_mut()
    }

    /// All of them may have changed.
    pub(super) fn touch_all(&mut self) {
        self.to_advance.all = true;
        self.to_commit.all = true;
    }

    /// Whether one of those that may have changed does not train, or not any more: a task of a graph may wait
    /// for that.
    pub(super) fn has_touched_one_that_does_not_run(&self) -> bool {
        let runs = |id: &JobId| self.get(id).is_some_and(|job| *job.phase() == Phase::Running);
        self.to_advance.all || !self.to_advance.some.iter().all(runs)
    }

    /// Those that may have changed since the last call, in the order of their ids.
    pub(super) fn take_to_advance(&mut self) -> Vec<JobId> {
        self.to_advance.take(&self.live)
    }

    /// Those that may have changed since the last call, in the order of their ids, for a commit.
    pub(super) fn take_to_commit(&mut self) -> Vec<JobId> {
        self.to_commit.take(&self.live)
    }

    /// One that was taken because it may have changed, if it is still live.
    pub(super) fn taken_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.live.get_mut(id)
    }

    /// Every one.
    pub(super) fn all(&self) -> impl Iterator<Item = &Job> {
        self.live.values().chain(self.over.values())
    }

    /// All changes of these are committed: whatever is over stays as it is.
    pub(super) fn settle(&mut self, committed: &[JobId]) {
        for id in committed {
            let has_ended = |job: &Job| job.phase().is_over() && !job.state.keeping;
            if self.live.get(id).is_some_and(has_ended) {
                self.over.extend(self.live.remove_entry(id));
            }
        }
    }
}

impl Touched {
    fn add(&mut self, id: &JobId) {
        if !self.all && !self.some.contains(id) {
            self.some.insert(id.clone());
        }
    }

    fn take(&mut self, live: &BTreeMap<JobId, Job>) -> Vec<JobId> {
        let Self { all, some } = mem::take(self);
        if all { live.keys().cloned().collect() } else { some.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{training, training_job};

    fn job(name: &str) -> Job {
        let mut spec = training_job(training("bsp".parse().unwrap(), 8, 8));
        spec.id = name.parse().unwrap();
        Job::new(spec.validated().unwrap(), 1, 1, 1)
    }

    fn ids<const N: usize>(names: [&str; N]) -> [JobId; N] {
        names.map(|name| name.parse().unwrap())
    }

    #[test]
    fn what_was_had_in_hand_is_looked_at_once_and_committed_once_and_nothing_else_is() {
        let mut trainings = Trainings::default();
        for name in ["b", "a", "c"] {
            trainings.insert(job(name));
        }
        assert_eq!(trainings.take_to_advance(), ids(["a", "b", "c"]));
        assert_eq!(trainings.take_to_commit(), ids(["a", "b", "c"]));
        let [b, gone] = ids(["b", "gone"]);
        for _ in 0..2 {
            assert!(trainings.get_mut(&b).is_some() && trainings.get_mut(&gone).is_none());
        }
        assert_eq!(trainings.take_to_advance(), ids(["b"]));
        assert_eq!(trainings.take_to_advance(), []);
        assert_eq!(trainings.take_to_commit(), ids(["b"]));
        assert_eq!(trainings.live_mut().count(), 3);
        assert_eq!(trainings.take_to_advance(), ids(["a", "b", "c"]));
        assert_eq!(trainings.take_to_commit(), ids(["a", "b", "c"]));
    }

    #[test]
    fn one_that_is_over_is_looked_at_no_more_once_it_is_committed() {
        let mut trainings = Trainings::default();
        for name in ["a", "b"] {
            trainings.insert(job(name));
        }
        let [a, b] = ids(["a", "b"]);
        trainings.get_mut(&a).unwrap().state.phase = Phase::Canceled;
        trainings.settle(&ids(["a", "b"]));
        assert_eq!(trainings.live().map(Job::id).collect::<Vec<_>>(), [&b]);
        assert!(trainings.get(&a).is_some() && trainings.taken_mut(&a).is_none());
    }
}
