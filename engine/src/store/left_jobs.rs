//! What the engine that led last has left: to be looked at before another cluster begins on the same Redis.

use syncline_scheduler::ids::JobId;

use super::{
    error::StoreError,
    keys::{self, JobKeys},
    redis_store::RedisStore,
};

/// Nobody else is served for long while so many keys are looked at.
const JOBS_PER_CALL: usize = 500;

/// The engine that led last, by its record in Redis, which stays when it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastLeader {
    /// Its name: that of its cluster, where `up` has started it.
    pub instance: String,
    /// Where it listened.
    pub address: String,
}

impl RedisStore {
    /// Which engine led last; `None` where no record tells, as in an empty Redis.
    pub async fn last_leader(&self) -> Result<Option<LastLeader>, StoreError> {
        let mut record = match self.hash("read the lead", keys::ENGINE).await {
            // No record of a lead: whoever takes it puts one in its place.
            Err(error) if error.is_of_keys() => return Ok(None),
            record => record?,
        };
        let mut field = |name| record.remove(name).filter(|text| !text.is_empty());
        Ok(field("instance")
            .map(|instance| LastLeader { instance, address: field("address").unwrap_or_default() }))
    }

    /// Jobs of which anything is there that an engine would take in. Where nothing is listed every key of the
    /// server is looked at, as an engine does that takes the lead.
    pub async fn left_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        let listed = match self.jobs().await {
            Err(error) if !error.is_of_keys() => return Err(error),
            listed => listed.unwrap_or_default(),
        };
        let jobs = if listed.is_empty() { self.find_jobs().await? } else { listed };
        let mut left = Vec::new();
        for jobs in jobs.chunks(JOBS_PER_CALL) {
            let mut pipe = redis::pipe();
            // Of one that was deleted the state stays for a while.
            jobs.iter().for_each(|job| {
                pipe.exists(JobKeys::new(job).job);
            });
            let there: Vec<bool> = self
                .bounded("look which jobs are there", || {
                    let (pipe, mut connection) = (&pipe, self.connection());
                    async move { pipe.query_async(&mut connection).await }
                })
                .await?;
            left.extend(jobs.iter().zip(there).filter(|(_, there)| *there).map(|(job, _)| job.clone()));
        }
        Ok(left)
    }
}
