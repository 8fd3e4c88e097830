//! Soft state: who is alive. Kept with expiry, outside the commits, for people and for incarnation numbers.

use std::sync::atomic::Ordering;

use redis::AsyncCommands;
use syncline_scheduler::ids::Incarnation;

use super::{error::StoreError, keys, redis_store::RedisStore};

/// A process that is not refreshed for this long disappears from the registry.
const ALIVE_EXPIRY_S: i64 = 10;

/// Numbers of workers that are skipped when an engine takes the lead: more than register in the moment by
/// which a store may go back.
const GAP: u64 = 100;

impl RedisStore {
    /// A number that no worker has had before, whatever Redis has forgotten since this engine began.
    pub async fn next_incarnation(&self) -> Result<Incarnation, StoreError> {
        self.take_incarnations("next incarnation", 1).await
    }

    /// Leaves a gap in the numbers of workers: those that Redis may have given away and forgotten never come
    /// again.
    pub async fn skip_incarnations(&self, highest_known: Incarnation) -> Result<(), StoreError> {
        self.highest_incarnation.fetch_max(highest_known.0, Ordering::Relaxed);
        self.take_incarnations("skip incarnations", GAP).await.map(drop)
    }

    async fn take_incarnations(&self, op: &'static str, count: u64) -> Result<Incarnation, StoreError> {
        let known = self.highest_incarnation.load(Ordering::Relaxed);
        let mut call = self.scripts.incarnations.prepare_invoke();
        call.key(keys::INCARNATIONS).arg(known).arg(GAP).arg(count);
        let last: String = self
            .bounded(op, || {
                let (call, mut connection) = (&call, self.connection());
                async move { call.invoke_async(&mut connection).await }
            })
            .await?;
        let last = last.parse().map_err(|_| StoreError::foreign(op, &self.address()))?;
        self.highest_incarnation.fetch_max(last, Ordering::Relaxed);
        Ok(Incarnation(last))
    }

    /// Refreshes the records of live processes: key and fields each.
    pub async fn refresh(&self, records: &[(String, Vec<(&'static str, String)>)]) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut pipe = redis::pipe();
        for (key, fields) in records {
            pipe.hset_multiple(key, fields).ignore().expire(key, ALIVE_EXPIRY_S).ignore();
        }
        self.bounded("refresh registry", || {
            let (pipe, mut c) = (&pipe, self.connection());
            async move { pipe.query_async(&mut c).await }
        })
        .await
    }

    /// Removes the record of a process that is gone.
    pub async fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.bounded("remove from registry", || {
            let mut c = self.connection();
            async move { c.unlink(key).await }
        })
        .await
    }
}
