//! A job as it is read back.

use std::{collections::BTreeMap, time::Duration};

use syncline_scheduler::{
    core::{StoredGraph, StoredJob},
    ids::JobId,
};

use super::{
    error::StoreError,
    keys::{Holds, JobKey, JobKeys},
    redis_store::{RedisStore, transfer_time},
};

/// Each job has so long, and what is large longer: a million general tasks are some hundred megabytes.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

type Fields = BTreeMap<String, Vec<u8>>;

impl RedisStore {
    /// A job as of one commit, without claiming it; empty if it has no keys.
    pub async fn read(&self, job: &JobId) -> Result<StoredJob, StoreError> {
        self.read_of_size(job, self.record_bytes(job).await?).await
    }

    /// About how many bytes the records of a job have in Redis, which looks at a few fields of each key; 0
    /// where it does not tell.
    pub async fn record_bytes(&self, job: &JobId) -> Result<u64, StoreError> {
        let names = JobKeys::new(job);
        let mut pipe = redis::pipe();
        for key in records() {
            pipe.cmd("MEMORY").arg("USAGE").arg(names.of(key));
        }
        let sizes = self.bounded("measure job", || {
            let (pipe, mut connection) = (&pipe, self.connection());
            async move { pipe.query_async::<Vec<Option<u64>>>(&mut connection).await }
        });
        match sizes.await {
            Ok(sizes) => Ok(sizes.into_iter().flatten().sum()),
            Err(error) if error.is_passing() => Err(error),
            Err(_) => Ok(0),
        }
    }

    /// The same as [`read`](Self::read), of a job that has about so many bytes.
    pub async fn read_of_size(&self, job: &JobId, bytes: u64) -> Result<StoredJob, StoreError> {
        let names = JobKeys::new(job);
        let mut pipe = redis::pipe();
        pipe.atomic();
        for key in records() {
            pipe.hgetall(names.of(key));
        }
        let read = self.bounded_by(READ_TIMEOUT + transfer_time(bytes), "read job", || {
            let (pipe, mut connection) = (&pipe, self.connection());
            async move { pipe.query_async::<Vec<Fields>>(&mut connection).await }
        });
        let mut stored = StoredJob::default();
        for (key, fields) in records().zip(read.await?) {
            place(&mut stored, key, fields)?;
        }
        Ok(stored)
    }
}

fn records() -> impl Iterator<Item = JobKey> {
    JobKey::ALL.into_iter().filter(|key| key.holds() == Holds::Records)
}

/// Puts what one key holds where it belongs.
fn place(stored: &mut StoredJob, key: JobKey, fields: Fields) -> Result<(), StoreError> {
    let StoredJob { spec, job_state, tasks, workers, supersteps, graph } = stored;
    let StoredGraph { classes, chunks, windows, values, faults, leases } = graph;
    let to = match key {
        JobKey::Values => {
            *values = fields;
            return Ok(());
        }
        JobKey::State => {
            let mut state = texts(fields)?;
            *spec = state.remove("spec").unwrap_or_default();
            *job_state = state.remove("job_state").unwrap_or_default();
            return Ok(());
        }
        JobKey::Tasks => tasks,
        JobKey::Workers => workers,
        JobKey::Supersteps => supersteps,
        JobKey::Classes => classes,
        JobKey::Graph => chunks,
        JobKey::States => windows,
        JobKey::Faults => faults,
        JobKey::Leases => leases,
        JobKey::Job
        | JobKey::Events
        | JobKey::Metrics
        | JobKey::Barriers
        | JobKey::Results
        | JobKey::Evaluations => return Ok(()),
    };
    *to = texts(fields)?;
    Ok(())
}

fn texts(fields: Fields) -> Result<BTreeMap<String, String>, StoreError> {
    let text = |(name, value)| Ok((name, text(value)?));
    fields.into_iter().map(text).collect()
}

pub(super) fn text(bytes: Vec<u8>) -> Result<String, StoreError> {
    String::from_utf8(bytes).map_err(|error| StoreError::NotText { op: "read job", cause: error.to_string() })
}
