//! Removing a job whose records cannot be used.

use redis::AsyncCommands;
use syncline_scheduler::ids::{EngineEpoch, JobId};

use super::{
    error::StoreError,
    keys::{FENCE_EXPIRY_S, JobKeys},
    redis_store::RedisStore,
};

/// No engine makes so many commits; scripts of Redis count exactly up to here, and beyond.
const HIGHEST_SEQ: u64 = 1 << 50;

/// Who wrote a job last, in the bytes that are stored; empty where there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastWriter {
    epoch: Vec<u8>,
    seq: Vec<u8>,
}

impl LastWriter {
    /// Number of the last commit, as far as it is one: whoever takes the place of the job counts on from
    /// there.
    pub fn seq(&self) -> Option<u64> {
        str::from_utf8(&self.seq).ok()?.parse().ok().filter(|seq| *seq < HIGHEST_SEQ)
    }
}

impl RedisStore {
    /// Who wrote a job last, whatever its records are.
    pub async fn last_writer(&self, job: &JobId) -> Result<LastWriter, StoreError> {
        let state = JobKeys::new(job).state;
        let read = self.bounded("read the last writer", || {
            let (state, mut c) = (&state, self.connection());
            async move { c.hmget::<_, _, (Option<Vec<u8>>, Option<Vec<u8>>)>(state, &["epoch", "seq"]).await }
        });
        match read.await {
            Ok((epoch, seq)) => {
                Ok(LastWriter { epoch: epoch.unwrap_or_default(), seq: seq.unwrap_or_default() })
            }
            // Something else lies in the place of the state.
            Err(error) if error.is_of_keys() => Ok(LastWriter::default()),
            Err(error) => Err(error),
        }
    }

    /// Removes every key of a job that `found` wrote last, whatever is in them, and fences what was sent
    /// before commit `seq` of the engine that has `epoch`. What came into its place, and what another
    /// engine has claimed, stays: the call may be sent again, and come late. Whether it was removed by
    /// this call.
    pub async fn erase(
        &self,
        job: &JobId,
        found: &LastWriter,
        epoch: EngineEpoch,
        seq: u64,
    ) -> Result<bool, StoreError> {
        let mut call = self.scripts.erase.prepare_invoke();
        for key in JobKeys::new(job).all() {
            call.key(key);
        }
        call.arg(epoch.0).arg(seq).arg(FENCE_EXPIRY_S).arg(&found.epoch).arg(&found.seq);
        self.bounded("erase job", || {
            let (call, mut connection) = (&call, self.connection());
            async move { call.invoke_async(&mut connection).await }
        })
        .await
    }
}
