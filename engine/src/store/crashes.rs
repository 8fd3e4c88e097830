//! Jobs at which engines have ended with a bug: counted as an engine dies, and read when the next one loads
//! them.

use std::time::Duration;

use syncline_scheduler::ids::{EngineEpoch, JobId};

use super::{error::StoreError, keys::JobKeys, redis_store::RedisStore};

/// After so many crashes in a row a job is set aside.
pub(super) const MAX_CRASHES: u64 = 3;
/// Crashes at one job that lie further apart are not in a row.
const IN_A_ROW: Duration = Duration::from_secs(600);
/// Most characters of a panic that are kept.
const MAX_PANIC_CHARS: usize = 500;

impl RedisStore {
    /// Counts a crash of the engine that has `epoch` while it handled a job; returns how many there were in a
    /// row.
    pub async fn note_crash(
        &self,
        job: &JobId,
        epoch: EngineEpoch,
        now_ms: u64,
        panic: &str,
    ) -> Result<u64, StoreError> {
        let mut call = self.scripts.crash.prepare_invoke();
        let panic: String = panic.chars().take(MAX_PANIC_CHARS).collect();
        call.key(JobKeys::new(job).state).arg(epoch.0).arg(now_ms);
        call.arg(IN_A_ROW.as_millis() as u64).arg(panic);
        // Once: what is sent again would be counted twice.
        let (call, mut connection) = (&call, self.connection());
        let counted =
            tokio::time::timeout(super::redis_store::CALL_TIMEOUT, call.invoke_async(&mut connection));
        let (op, address) = ("note a crash", self.address());
        let no_answer = |_| StoreError::Unavailable { op, cause: format!("{address}: no answer in time") };
        counted.await.map_err(no_answer)?.map_err(|e| StoreError::of(op, &address, &e))
    }
}
