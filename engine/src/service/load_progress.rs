//! How far an engine is that reads its jobs, as whoever asks it is told meanwhile.

use syncline_rpc::{InactiveReason, LoadedJobs};
use tokio::sync::watch;

use super::lead::Lead;

/// Of all loads of one engine, one after the other.
pub(super) struct LoadProgress {
    activate: watch::Sender<Result<Lead, InactiveReason>>,
    jobs: LoadedJobs,
    /// How far the load before came that failed. Why it did stays said until this one has come further.
    failed_at: u64,
}

impl LoadProgress {
    pub(super) fn new(activate: watch::Sender<Result<Lead, InactiveReason>>) -> Self {
        Self { activate, jobs: LoadedJobs::default(), failed_at: 0 }
    }

    /// A load has found so many jobs.
    pub(super) fn listed(&mut self, jobs: usize) {
        self.jobs = LoadedJobs { of: jobs as u64, ..LoadedJobs::default() };
        self.tell();
    }

    pub(super) fn claimed(&mut self, jobs: usize) {
        self.jobs.claimed += jobs as u64;
        self.tell();
    }

    pub(super) fn read(&mut self, jobs: usize) {
        self.jobs.read += jobs as u64;
        self.tell();
    }

    pub(super) fn failed(&mut self) {
        self.failed_at = self.jobs.steps();
        self.jobs = LoadedJobs::default();
    }

    pub(super) fn succeeded(&mut self) {
        (self.failed_at, self.jobs) = (0, LoadedJobs::default());
    }

    fn tell(&self) {
        let nothing_to_tell =
            self.jobs.of == 0 || (self.failed_at > 0 && self.jobs.steps() <= self.failed_at);
        if !nothing_to_tell {
            drop(self.activate.send_replace(Err(InactiveReason::Loading(self.jobs))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_told_how_far_it_is_and_after_a_failure_why_until_it_is_further() {
        let (activate, active) = watch::channel(Err(InactiveReason::Changing));
        let said = || active.borrow().as_ref().map(drop).unwrap_err().to_string();
        let mut progress = LoadProgress::new(activate.clone());
        progress.listed(0);
        assert_eq!(said(), InactiveReason::Changing.to_string(), "there is nothing to read");
        progress.listed(300);
        progress.claimed(128);
        assert_eq!(said(), "it takes the lead and its jobs over: 128 of 300");
        progress.claimed(172);
        progress.read(8);
        assert_eq!(said(), "it reads its jobs: 8 of 300");

        progress.failed();
        drop(activate.send_replace(Err(InactiveReason::Store { cause: "it hangs".into() })));
        progress.listed(300);
        progress.claimed(300);
        progress.read(8);
        assert!(said().ends_with("it hangs"), "{}", said());
        progress.read(8);
        assert_eq!(said(), "it reads its jobs: 16 of 300");

        progress.succeeded();
        drop(activate.send_replace(Err(InactiveReason::Changing)));
        progress.listed(300);
        assert_eq!(said(), "it takes the lead and its jobs over: 0 of 300");
    }
}
