//! The jobs that a standby follows.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use syncline_rpc::threads::lock;
use syncline_scheduler::ids::{JobId, RunId};

use crate::shard::{JobShard, Term};

/// All that this process follows.
#[derive(Default)]
pub(super) struct FollowedJobs(pub(super) Mutex<Followed>);

#[derive(Default)]
pub(super) struct Followed {
    /// Under which those are followed that are here; `None`: nothing is followed.
    pub term: Option<Term>,
    pub jobs: HashMap<JobId, Arc<FollowedJob>>,
}

/// A job as it is on the primary, or was.
pub(super) struct FollowedJob {
    pub shard: Arc<JobShard>,
    /// It has everything that the primary has told anybody.
    pub in_step: AtomicBool,
    /// Whether it is followed no more: it is served, or another has its place. Held while a change is made.
    pub ended: Mutex<bool>,
}

impl FollowedJobs {
    /// How many could be served now.
    pub(super) fn in_step(&self) -> usize {
        lock(&self.0).jobs.values().filter(|job| job.is_in_step()).count()
    }

    /// Forgets all, and takes in those that are sent under `term`. Waits for the changes that are being made.
    pub(super) fn begin(&self, term: Term) {
        let mut followed = lock(&self.0);
        followed.term = Some(term);
        let old: Vec<_> = followed.jobs.drain().map(|(_, job)| job).collect();
        drop(followed);
        old.iter().for_each(|job| job.end());
    }

    /// Those that can be served; nothing changes them any more, and none comes in. Waits for the changes that
    /// are being made, which may take long: until they are [forgotten](Self::forget_all) this process
    /// says that it has them.
    pub(super) fn finish(&self) -> Vec<Arc<JobShard>> {
        let mut followed = lock(&self.0);
        followed.term = None;
        let all: Vec<_> = followed.jobs.values().cloned().collect();
        // The table is not locked meanwhile: who makes a change may need it.
        drop(followed);
        all.iter().for_each(|job| job.end());
        all.into_iter().filter(|job| job.is_in_step()).map(|job| job.shard.clone()).collect()
    }

    /// They are served from now on.
    pub(super) fn forget_all(&self) {
        lock(&self.0).jobs.clear();
    }

    /// A run of the same job, if one is followed.
    pub(super) fn find(&self, run: &RunId) -> Option<Arc<JobShard>> {
        let known = lock(&self.0).jobs.get(&run.job).map(|job| job.shard.clone());
        known.filter(|shard| shard.run().is_of_same_job(run))
    }

    /// False: another term has begun.
    pub(super) fn insert(&self, job: &Arc<FollowedJob>, term: Term) -> bool {
        let mut followed = lock(&self.0);
        if followed.term != Some(term) {
            return false;
        }
        let old = followed.jobs.insert(job.shard.job().clone(), job.clone());
        drop(followed);
        if let Some(old) = old {
            old.end();
        }
        true
    }

    pub(super) fn remove(&self, job: &Arc<FollowedJob>) {
        let mut followed = lock(&self.0);
        if followed.jobs.get(job.shard.job()).is_some_and(|known| Arc::ptr_eq(known, job)) {
            followed.jobs.remove(job.shard.job());
        }
    }
}

impl FollowedJob {
    pub(super) fn new(shard: JobShard) -> Self {
        Self { shard: Arc::new(shard), in_step: AtomicBool::new(false), ended: Mutex::new(false) }
    }

    /// Waits for the change that is being made; no other one is.
    fn end(&self) {
        *lock(&self.ended) = true;
    }

    pub(super) fn is_in_step(&self) -> bool {
        self.in_step.load(Ordering::Acquire)
    }
}
