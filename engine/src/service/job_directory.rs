//! What everybody may ask of the jobs that this engine knows, without asking the core.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Instant,
};

use syncline_rpc::threads::lock;
use syncline_scheduler::{
    ids::JobId,
    spec::{TrainSpec, ValidJob},
};

use super::damaged_jobs::Damage;

/// The jobs of the engine that leads; clones share them. The decision loop writes, all others read.
#[derive(Clone, Default)]
pub(super) struct JobDirectory(Arc<Mutex<Jobs>>);

#[derive(Default)]
struct Jobs {
    /// Those that are to be listed, each with its place: one is looked for in it for each that is shown.
    listed: HashMap<JobId, u64>,
    /// That of the next one.
    next_place: u64,
    /// Those whose records cannot be used, with what is wrong with them.
    damaged: BTreeMap<JobId, Damage>,
    /// Those that have ended and whose end Redis may still lose, each with the time of its end.
    just_ended: BTreeMap<JobId, Instant>,
    /// Training settings of those that are not over, each with the nonce of its submission.
    specs: BTreeMap<JobId, (u32, Arc<TrainSpec>)>,
}

impl JobDirectory {
    /// Puts a job at the end of the list.
    pub(super) fn list(&self, job: &JobId) {
        let mut jobs = lock(&self.0);
        let place = jobs.next_place;
        jobs.listed.insert(job.clone(), place);
        jobs.next_place += 1;
    }

    pub(super) fn unlist(&self, job: &JobId) {
        lock(&self.0).listed.remove(job);
    }

    /// The jobs that are to be listed, in their order.
    pub(super) fn listed(&self) -> Vec<JobId> {
        let mut placed: Vec<(u64, JobId)> =
            lock(&self.0).listed.iter().map(|(job, place)| (*place, job.clone())).collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, job)| job).collect()
    }

    /// Whether this engine has the job, in whatever state it is.
    pub(super) fn knows(&self, job: &JobId) -> bool {
        lock(&self.0).listed.contains_key(job)
    }

    /// Parks a job that cannot be used.
    pub(super) fn mark_damaged(&self, job: &JobId, damage: Damage) {
        lock(&self.0).damaged.insert(job.clone(), damage);
    }

    /// What is wrong with a job that is parked.
    pub(super) fn damaged(&self, job: &JobId) -> Option<Damage> {
        lock(&self.0).damaged.get(job).cloned()
    }

    /// The job is not parked any more.
    pub(super) fn clear_damaged(&self, job: &JobId) {
        lock(&self.0).damaged.remove(job);
    }

    /// Redis may still lose the end of a job, and is given it again then.
    pub(super) fn note_end(&self, job: &JobId, at: Instant) {
        lock(&self.0).just_ended.insert(job.clone(), at);
    }

    /// The end of a job is not watched over any more.
    pub(super) fn forget_end(&self, job: &JobId) {
        lock(&self.0).just_ended.remove(job);
    }

    /// Watches no more over what ended before.
    pub(super) fn forget_ends_before(&self, time: Option<Instant>) {
        lock(&self.0).just_ended.retain(|_, ended| time.is_none_or(|time| *ended > time));
    }

    /// Whether the end of a job is watched over.
    pub(super) fn has_just_ended(&self, job: &JobId) -> bool {
        lock(&self.0).just_ended.contains_key(job)
    }

    /// Keeps a job's training settings in memory for workers and shards.
    pub(super) fn remember_spec(&self, job: &ValidJob, nonce: u32) {
        lock(&self.0).specs.insert(job.id.clone(), (nonce, Arc::new(job.train().clone())));
    }

    /// The job's training settings, if it trains, and the nonce of its submission.
    pub(super) fn training(&self, job: &JobId) -> Option<(u32, Arc<TrainSpec>)> {
        lock(&self.0).specs.get(job).cloned()
    }

    /// Drops the job's settings: it is over.
    pub(super) fn forget_spec(&self, job: &JobId) {
        lock(&self.0).specs.remove(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_listed_in_the_order_in_which_each_came_last() {
        let (jobs, id) = (JobDirectory::default(), |name: &str| name.parse::<JobId>().unwrap());
        ["b", "a", "c", "b"].iter().for_each(|name| jobs.list(&id(name)));
        assert_eq!(jobs.listed(), ["a", "c", "b"].map(id));
        jobs.unlist(&id("c"));
        assert_eq!(jobs.listed(), ["a", "b"].map(id));
        assert!(jobs.knows(&id("a")) && !jobs.knows(&id("c")));
    }
}
