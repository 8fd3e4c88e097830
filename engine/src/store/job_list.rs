//! The list of jobs, and when what is on it expires.

use std::collections::BTreeSet;

use redis::AsyncCommands;
use syncline_scheduler::ids::{EngineEpoch, JobId};

use super::{
    error::StoreError,
    keys::{self, JobKeys},
    redis_store::RedisStore,
};

/// Nobody else is served while a script runs.
const JOBS_PER_CALL: usize = 500;

/// When the keys of a job expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// They have, or there never were any.
    Gone,
    /// Not by themselves.
    Never,
    /// So many ms from now.
    InMs(u64),
}

impl RedisStore {
    /// Lists a job before its first commit: a listed job without keys is harmless, an unlisted one would be
    /// lost.
    pub async fn list_job(&self, job: &JobId, epoch: EngineEpoch, at_ms: u64) -> Result<(), StoreError> {
        self.change_list("list job", epoch, &["add", &at_ms.to_string(), job.as_str()]).await
    }

    /// Lists jobs in this order that are not listed any more, because somebody took them off; the others stay
    /// as they are.
    pub async fn relist_jobs(
        &self,
        jobs: &[JobId],
        epoch: EngineEpoch,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        let listed: BTreeSet<JobId> = match self.jobs().await {
            Err(error) if !error.is_of_keys() => return Err(error),
            listed => listed.unwrap_or_default().into_iter().collect(),
        };
        let missing: Vec<&JobId> = jobs.iter().filter(|job| !listed.contains(*job)).collect();
        let first_ms = at_ms.saturating_sub(missing.len() as u64);
        let scores: Vec<String> = (first_ms..at_ms).map(|ms| ms.to_string()).collect();
        let pairs: Vec<[&str; 2]> =
            scores.iter().zip(missing).map(|(ms, job)| [ms.as_str(), job.as_str()]).collect();
        for pairs in pairs.chunks(JOBS_PER_CALL) {
            let words: Vec<&str> = ["again"].into_iter().chain(pairs.iter().flatten().copied()).collect();
            self.change_list("list jobs again", epoch, &words).await?;
        }
        Ok(())
    }

    /// Takes a job off the list.
    pub async fn unlist_job(&self, job: &JobId, epoch: EngineEpoch) -> Result<(), StoreError> {
        self.change_list("unlist job", epoch, &["remove", job.as_str()]).await
    }

    async fn change_list(
        &self,
        op: &'static str,
        epoch: EngineEpoch,
        words: &[&str],
    ) -> Result<(), StoreError> {
        let mut call = self.scripts.list.prepare_invoke();
        call.key(keys::ENGINE).key(keys::JOBS).arg(epoch.0).arg(words);
        let done: u64 = self
            .bounded(op, || {
                let (call, mut connection) = (&call, self.connection());
                async move { call.invoke_async(&mut connection).await }
            })
            .await?;
        if done == 1 { Ok(()) } else { Err(StoreError::Fenced { epoch: 0, seq: 0 }) }
    }

    /// Jobs in the order they were submitted, those whose keys have expired included.
    pub async fn jobs(&self) -> Result<Vec<JobId>, StoreError> {
        // Somebody may have put anything between them.
        let names: Vec<Vec<u8>> = self
            .bounded("list jobs", || {
                let mut c = self.connection();
                async move { c.zrange(keys::JOBS, 0, -1).await }
            })
            .await?;
        Ok(names.iter().filter_map(|name| str::from_utf8(name).ok()?.parse().ok()).collect())
    }

    /// Lets the keys of a job stay that were to expire.
    pub async fn keep(&self, job: &JobId) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        JobKeys::new(job).all().iter().for_each(|key| {
            pipe.persist(*key).ignore();
        });
        self.bounded("keep job", || {
            let (pipe, mut connection) = (&pipe, self.connection());
            async move { pipe.query_async(&mut connection).await }
        })
        .await
    }

    /// What the server's clock says, by which keys expire, in seconds of the epoch.
    pub async fn time_s(&self) -> Result<u64, StoreError> {
        let (time_s, _us): (u64, u64) = self.query("read the clock", &["TIME"]).await?;
        Ok(time_s)
    }

    /// When the keys of these jobs expire, in their order.
    pub async fn expiries(&self, jobs: &[JobId]) -> Result<Vec<Expiry>, StoreError> {
        let mut expiries = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(JOBS_PER_CALL) {
            let mut pipe = redis::pipe();
            jobs.iter().for_each(|job| {
                pipe.pttl(JobKeys::new(job).state);
            });
            let left_ms: Vec<i64> = self
                .bounded("look when jobs expire", || {
                    let (pipe, mut connection) = (&pipe, self.connection());
                    async move { pipe.query_async(&mut connection).await }
                })
                .await?;
            expiries.extend(left_ms.into_iter().map(|ms| match ms {
                -2 => Expiry::Gone,
                ms => u64::try_from(ms).map_or(Expiry::Never, Expiry::InMs),
            }));
        }
        Ok(expiries)
    }
}
