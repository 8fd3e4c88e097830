//! Which jobs the training slots of one process serve.

use std::collections::{BTreeMap, BTreeSet};

use syncline_scheduler::ids::ProcessId;

use super::{Cluster, settings};

impl Cluster {
    /// A job has one worker of each process at most.
    pub(super) fn check_slots(&mut self) {
        if self.settings.training_slots == 1 {
            return;
        }
        let mut jobs_of = BTreeMap::<Option<ProcessId>, usize>::new();
        for id in settings::jobs(&self.settings) {
            let Some(job) = self.core.job(&id).filter(|job| !job.phase().is_over()) else { continue };
            let active: Vec<Option<ProcessId>> =
                job.active().map(|worker| self.settings.about(worker).process).collect();
            let processes: BTreeSet<Option<ProcessId>> = active.iter().copied().collect();
            assert_eq!(active.len(), processes.len(), "{id}: {active:?} {:?}", self.settings);
            processes.into_iter().for_each(|process| *jobs_of.entry(process).or_default() += 1);
        }
        self.most_jobs = self.most_jobs.max(jobs_of.into_values().max().unwrap_or(0));
    }

    /// So many jobs had a worker of the same process at the same time.
    pub fn most_jobs_of_a_process(&self) -> usize {
        self.most_jobs
    }
}
