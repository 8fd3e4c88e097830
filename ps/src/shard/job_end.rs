//! Whether a job goes on here.
//!
//! It stands beside the state of the job: whoever asks must not wait for who has that locked, as a barrier
//! that closes does for as long as it walks over all parameters, and who writes the job down for longer.
//!
//! ```text
//! goes on ⇄ frozen → written → aside
//!         ⇄──────────┘
//! ```
//!
//! Closed or replaced it may be at any time.

use std::sync::Mutex;

use syncline_rpc::{ShardFault, threads::lock};
use syncline_scheduler::ids::{Generation, RunId};

/// Why a job accepts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Closed,
    /// Until it is written down, or an engine asks for it.
    Frozen,
    /// The same, and it is on disk as it is.
    Written,
    /// It is held no more, and is read from disk once an engine asks for it.
    Aside,
    Replaced(Generation),
}

/// The end of one job. It is frozen under the lock of the state: nobody who has that is half way then.
#[derive(Default)]
pub(super) struct EndCell(Mutex<Option<JobEnd>>);

impl JobEnd {
    pub(super) fn is_frozen(self) -> bool {
        matches!(self, Self::Frozen | Self::Written)
    }

    pub(super) fn fault(self, run: &RunId) -> ShardFault {
        let (job, given) = (run.job.clone(), run.generation);
        match self {
            Self::Closed | Self::Frozen | Self::Written | Self::Aside => ShardFault::Closed { job },
            Self::Replaced(current) => ShardFault::WrongGeneration { job, given, current },
        }
    }
}

impl EndCell {
    /// `None`: it goes on.
    pub(super) fn get(&self) -> Option<JobEnd> {
        *lock(&self.0)
    }

    /// It is over, whatever it was.
    pub(super) fn set(&self, end: JobEnd) {
        *lock(&self.0) = Some(end);
    }

    /// Whether it went on until now.
    pub(super) fn freeze(&self) -> bool {
        let mut end = lock(&self.0);
        let is_new = end.is_none();
        end.get_or_insert(JobEnd::Frozen);
        is_new
    }

    /// Whether it goes on now.
    pub(super) fn thaw(&self) -> bool {
        let mut end = lock(&self.0);
        end.take_if(|end| end.is_frozen());
        end.is_none()
    }

    /// False: it is not frozen any more.
    pub(super) fn mark_written(&self) -> bool {
        self.step(JobEnd::is_frozen, JobEnd::Written)
    }

    /// False: it is not on disk as it is.
    pub(super) fn set_aside(&self) -> bool {
        self.step(|end| end == JobEnd::Written, JobEnd::Aside)
    }

    fn step(&self, may: impl FnOnce(JobEnd) -> bool, next: JobEnd) -> bool {
        let mut end = lock(&self.0);
        let may = end.is_some_and(may);
        if may {
            *end = Some(next);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that asks for a job and one that sets it aside each see who was first.
    #[test]
    fn only_what_is_on_disk_as_it_is_is_set_aside_and_only_what_is_not_goes_on() {
        let end = EndCell::default();
        assert!(!end.mark_written() && !end.set_aside(), "it goes on");
        assert!(end.freeze() && !end.freeze() && !end.set_aside());
        assert!(end.mark_written() && end.mark_written() && !end.freeze());
        assert!(end.thaw() && end.thaw());
        assert!(end.freeze() && !end.set_aside(), "the file is of what it was before");
        assert!(end.mark_written() && end.set_aside());
        assert!(!end.thaw() && !end.set_aside());
        assert_eq!(end.get(), Some(JobEnd::Aside));
        end.set(JobEnd::Closed);
        assert!(!end.thaw() && !end.freeze());
    }
}
