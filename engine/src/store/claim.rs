//! Claiming the jobs of the engine before: from then on nobody else writes them.

use syncline_scheduler::ids::{EngineEpoch, JobId};

use super::{
    crashes::MAX_CRASHES,
    error::StoreError,
    keys::{FENCE_EXPIRY_S, JobKey, JobKeys, SCHEMA},
    redis_store::RedisStore,
};

/// A listed job, claimed by an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It has records, which [`RedisStore::read`] gives.
    Job {
        /// Number of its last commit: the next one has the number behind it.
        seq: u64,
    },
    /// Listed, and without keys.
    Absent,
    /// Its keys cannot be those of a job.
    Damaged {
        /// What shows that, in words.
        what: String,
    },
    /// Engines have ended with a bug while they handled it, so often in a row, the last one with this panic.
    Crashing {
        /// Crashes in a row, enough for the job to be set aside.
        times: u64,
        /// Message of the last panic, its first 500 characters.
        panic: String,
    },
}

impl RedisStore {
    /// Claims a job for `epoch`. The answer is small: many may be asked for at a time.
    pub async fn claim(&self, job: &JobId, epoch: EngineEpoch) -> Result<Claimed, StoreError> {
        let mut call = self.scripts.claim.prepare_invoke();
        for key in JobKeys::new(job).all() {
            call.key(key);
        }
        call.arg(epoch.0).arg(FENCE_EXPIRY_S).arg(JobKey::letters()).arg(MAX_CRASHES).arg(SCHEMA);
        let answer: Vec<String> = self
            .bounded("claim", || {
                let (call, mut connection) = (&call, self.connection());
                async move { call.invoke_async(&mut connection).await }
            })
            .await?;
        let text = |i: usize| answer.get(i).cloned().unwrap_or_default();
        match (text(0).as_str(), text(1)) {
            ("none", _) => Ok(Claimed::Absent),
            ("ok", seq) => Ok(match seq.parse() {
                Ok(seq) => Claimed::Job { seq },
                Err(_) => Claimed::Damaged { what: format!("its seq is `{seq}`") },
            }),
            // The caller checks its lease: if it still leads, no engine had that epoch and the record is
            // damaged.
            ("fenced", epoch) => Err(StoreError::Fenced { epoch: epoch.parse().unwrap_or(u64::MAX), seq: 0 }),
            ("newer", schema) => Err(StoreError::Newer { job: job.clone(), schema }),
            ("damaged", what) => Ok(Claimed::Damaged { what }),
            ("crashing", times) => {
                Ok(Claimed::Crashing { times: times.parse().unwrap_or_default(), panic: text(2) })
            }
            _ => Err(StoreError::foreign("claim", &self.address())),
        }
    }
}
