//! A job as it is read back.

use std::{collections::BTreeMap, time::Duration};

use syncline_scheduler::{
    core::{StoredGraph, StoredJob},
    ids::JobId,
};

use super::{error::StoreError, keys::JobKeys, redis_store::RedisStore};

/// A million general tasks are some hundred megabytes.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

impl RedisStore {
    /// A job as of one commit, without claiming it; empty if it has no keys.
    pub async fn read(&self, job: &JobId) -> Result<StoredJob, StoreError> {
        let names = JobKeys::new(job);
        let mut pipe = redis::pipe();
        pipe.atomic();
        let records = [&names.state, &names.tasks, &names.workers, &names.supersteps];
        let graph =
            [&names.classes, &names.graph, &names.states, &names.values, &names.faults, &names.leases];
        for key in records.into_iter().chain(graph) {
            pipe.hgetall(key);
        }
        type Fields = BTreeMap<String, String>;
        type Values = BTreeMap<String, Vec<u8>>;
        type Hashes = (Fields, Fields, Fields, Fields, Fields, Fields, Fields, Values, Fields, Fields);
        let read = self.bounded_by(READ_TIMEOUT, "read job", || {
            let (pipe, mut connection) = (&pipe, self.connection());
            async move { pipe.query_async(&mut connection).await }
        });
        let hashes: Hashes = read.await?;
        let (mut state, tasks, workers, supersteps, classes, chunks, windows, values, faults, leases) =
            hashes;
        let graph = StoredGraph { classes, chunks, windows, values, faults, leases };
        let spec = state.remove("spec").unwrap_or_default();
        let job_state = state.remove("job_state").unwrap_or_default();
        Ok(StoredJob { spec, job_state, tasks, workers, supersteps, graph })
    }
}
