//! What happened to a job since somebody looked: what the core has to see to, and what is to be written.

use std::collections::{BTreeSet, VecDeque};

use crate::{
    core::Event,
    ids::{ContentDigest, Incarnation, JobId},
    tasks::{Attempt, ClassIndex},
};

/// What the core has to see to after something happened to the job.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingActions {
    /// Attempts that nobody wants any more.
    pub recalled: Vec<(Incarnation, Attempt)>,
    /// Attempts that are told to stop, and whose end is waited for.
    pub stopped: Vec<(Incarnation, Attempt)>,
    /// Leases that have ended.
    pub freed: Vec<(Incarnation, ClassIndex)>,
    /// Training jobs that nobody wants any more.
    pub trainings_ended: Vec<JobId>,
    /// Blobs that nobody needs any more.
    pub released: Vec<ContentDigest>,
    /// Tasks that were to take outcomes, and have ended without giving anything.
    pub ended_takers: Vec<u32>,
    /// Tasks that became ready and may not wait forever.
    pub queued: Vec<u32>,
    /// Classes that have ready tasks and had none.
    pub offered: Vec<ClassIndex>,
}

/// What the next commit must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    pub spec: bool,
    pub job_state: bool,
    /// Tasks and classes that are stored.
    pub stored_tasks: u32,
    pub stored_classes: usize,
    pub faults: BTreeSet<u32>,
    pub leases: BTreeSet<Incarnation>,
    pub workers: BTreeSet<Incarnation>,
    pub events: Vec<Event>,
    /// Events among them that tell of the end of an attempt.
    pub attempts_told: u32,
    /// The newest tasks whose results have come and that people may look at.
    pub results: VecDeque<u32>,
}

/// Most results of one commit that are listed: where many come at once, nobody reads them all.
const RESULTS_OF_A_COMMIT: usize = 8;

impl Changes {
    /// The result of a task has come.
    pub(super) fn note_result(&mut self, task: u32) {
        if self.results.len() == RESULTS_OF_A_COMMIT {
            self.results.pop_front();
        }
        self.results.push_back(task);
    }
}
