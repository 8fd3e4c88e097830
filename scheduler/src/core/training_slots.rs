//! Workers that are training slots of one process.
//!
//! A process that may train for several jobs at a time registers once for each, so that every membership has
//! an incarnation of its own at the shards: a barrier of one job never waits for a pull of another. To the
//! core each is a worker; what this file adds is who shares a process. A job takes one slot of each process
//! at most, and what the process offers to general tasks, which the first slot offers for all, is less by the
//! slots that train.

use std::collections::{BTreeMap, BTreeSet};

use super::worker_info::WorkerInfo;
use crate::ids::{Incarnation, ProcessId};

/// The workers of each process that has named itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TrainingSlots(BTreeMap<ProcessId, BTreeSet<Incarnation>>);

impl TrainingSlots {
    pub(super) fn insert(&mut self, worker: Incarnation, about: &WorkerInfo) {
        if let Some(process) = about.process.filter(|_| about.trains) {
            self.0.entry(process).or_default().insert(worker);
        }
    }

    pub(super) fn remove(&mut self, worker: Incarnation, about: &WorkerInfo) {
        let Some(process) = about.process else { return };
        if let Some(slots) = self.0.get_mut(&process) {
            slots.remove(&worker);
            if slots.is_empty() {
                self.0.remove(&process);
            }
        }
    }

    /// Processes that have named themselves.
    pub(super) fn process_count(&self) -> usize {
        self.0.len()
    }

    /// How many slots of a worker's process train, its own included. Cost O(slots of the process).
    pub(super) fn training(
        &self,
        worker: Incarnation,
        about: &WorkerInfo,
        idle: &BTreeSet<Incarnation>,
    ) -> u32 {
        match about.process.and_then(|process| self.0.get(&process)) {
            Some(slots) => slots.iter().filter(|slot| !idle.contains(slot)).count() as u32,
            None => u32::from(about.trains && !idle.contains(&worker)),
        }
    }
}
