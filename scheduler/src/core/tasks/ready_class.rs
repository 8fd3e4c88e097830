//! Whose turn it is among the classes with ready tasks.

use std::cmp::Reverse;

use super::job::TaskJob;
use crate::{ids::JobId, tasks::ClassIndex};

/// A class with ready tasks: higher priority first, then older jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyClass {
    priority: Reverse<i16>,
    submitted_us: u64,
    pub(super) job: JobId,
    pub(super) class: ClassIndex,
}

impl ReadyClass {
    pub(super) fn of(job: &TaskJob, class: ClassIndex) -> Self {
        let priority = Reverse(job.class(class).class.rules.priority);
        Self { priority, submitted_us: job.state.submitted_us, job: job.id.clone(), class }
    }

    /// Its place among those of other jobs. Within one job chains go on first, so that what was begun comes
    /// to its end.
    pub(super) fn turn(&self) -> (Reverse<i16>, u64, &JobId) {
        (self.priority, self.submitted_us, &self.job)
    }
}
