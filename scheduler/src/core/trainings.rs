//! All trainings: those of which something may still change, which every input looks at, and those that are over, of which there
//! may be thousands.

use std::collections::BTreeMap;

use super::job::Job;
use crate::ids::JobId;

/// By their ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Trainings {
    live: BTreeMap<JobId, Job>,
    /// Over, and all of it committed.
    over: BTreeMap<JobId, Job>,
}

impl Trainings {
    pub(super) fn get(&self, id: &JobId) -> Option<&Job> {
        self.live.get(id).or_else(|| self.over.get(id))
    }

    pub(super) fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.live.get_mut(id).or_else(|| self.over.get_mut(id))
    }

    /// Takes a job in, and returns the one in whose place it stands.
    pub(super) fn insert(&mut self, job: Job) -> Option<Job> {
        let old = self.remove(job.id());
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

    /// Those that are not over, in the order of their ids, to change them.
    pub(super) fn live_mut(&mut self) -> impl Iterator<Item = (&JobId, &mut Job)> {
        self.live.iter_mut()
    }

    /// Every one.
    pub(super) fn all(&self) -> impl Iterator<Item = &Job> {
        self.live.values().chain(self.over.values())
    }

    /// All changes are committed: whatever is over stays as it is.
    pub(super) fn settle(&mut self) {
        let ended = |(_, job): &(&JobId, &mut Job)| job.phase().is_over() && !job.state.keeping;
        let ended: Vec<JobId> = self.live.iter_mut().filter(ended).map(|(id, _)| id.clone()).collect();
        self.over.extend(ended.into_iter().filter_map(|id| self.live.remove_entry(&id)));
    }
}
