//! Jobs whose records cannot be used now: shards keep what they hold of them, until somebody gives them up.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{job::Job, state_machine::Core};
use crate::ids::{JobId, RunId};

/// Jobs that were set aside, and what became of them since.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SetAside {
    /// They may be taken in again, and need what shards hold of them then.
    jobs: BTreeSet<JobId>,
    /// Given up since: no shard keeps anything of them. Each with the nonces of the jobs that took its name
    /// after it, which are others.
    discarded: BTreeMap<JobId, BTreeSet<u32>>,
    /// Those of them that went with their graph, since they were last taken.
    went_with_graph: Vec<JobId>,
}

impl SetAside {
    pub(super) fn contains(&self, job: &JobId) -> bool {
        self.jobs.contains(job)
    }

    /// Whether this is a run of a job that was given up.
    pub(super) fn is_discarded(&self, run: &RunId) -> bool {
        let later = self.discarded.get(&run.job);
        later.is_some_and(|later| !later.contains(&run.generation.nonce()))
    }

    /// The name of a training is needed for another one.
    pub(super) fn replace(&mut self, training: &JobId) {
        if self.jobs.remove(training) {
            self.discarded.insert(training.clone(), BTreeSet::new());
            self.went_with_graph.push(training.clone());
        }
    }

    /// A graph is gone, and nobody wants its trainings any more.
    pub(super) fn drop_trainings_of(&mut self, graph: &JobId) {
        for training in self.jobs.extract_if(.., |job| job.is_training_of(graph)) {
            self.discarded.insert(training.clone(), BTreeSet::new());
            self.went_with_graph.push(training);
        }
    }

    /// Drops what nobody has asked for with [`Core::take_erasable`].
    pub(super) fn discard_changes(&mut self) {
        self.went_with_graph.clear();
    }
}

impl Core {
    /// The records of a job cannot be used: shards keep what they hold of it.
    pub fn set_aside(&mut self, job: JobId) {
        self.set_aside.jobs.insert(job);
    }

    /// Somebody has deleted a job that was set aside: no task of it waits for a training any more, and no
    /// shard keeps what it has of it.
    pub fn give_up_aside(&mut self, job: &JobId) {
        self.has_loaded_trainings |= self.set_aside.jobs.remove(job);
        self.set_aside.discarded.insert(job.clone(), BTreeSet::new());
        self.set_aside.drop_trainings_of(job);
    }

    /// Trainings that were set aside and that no graph can take back since the last call: theirs is gone, or
    /// begins another one under the name. Their records are to be erased before anything else is committed.
    pub fn take_erasable(&mut self) -> Vec<JobId> {
        mem::take(&mut self.set_aside.went_with_graph)
    }

    /// Takes in a training that begins, and returns the one in whose place it stands.
    pub(super) fn insert_new(&mut self, training: Job) -> Option<Job> {
        if let Some(later) = self.set_aside.discarded.get_mut(training.id()) {
            later.insert(training.generation().nonce());
        }
        self.jobs.insert(training)
    }
}
