//! Soft state: who is alive. Kept with expiry, outside the commits, for people and for incarnation numbers.

use redis::AsyncCommands;
use syncline_scheduler::ids::Incarnation;

use super::{error::StoreError, keys, redis_store::RedisStore};

/// A process that is not refreshed for this long disappears from the registry.
const ALIVE_EXPIRY_S: i64 = 10;

/// Numbers of workers that are skipped when an engine takes the lead: more than register in the moment by which a store
/// may go back.
const GAP: u64 = 100;

impl RedisStore {
    /// A number that no worker has had before.
    pub async fn next_incarnation(&self) -> Result<Incarnation, StoreError> {
        let n: u64 = Self::bounded("next incarnation", || {
            let mut c = self.connection.clone();
            async move { c.incr(keys::INCARNATIONS, 1).await }
        })
        .await?;
        Ok(Incarnation(n))
    }

    /// Leaves a gap in the numbers of workers: those that Redis may have given away and forgotten never come again.
    pub async fn skip_incarnations(&self, highest_known: Incarnation) -> Result<(), StoreError> {
        let n: u64 = Self::bounded("skip incarnations", || {
            let mut c = self.connection.clone();
            async move { c.incr(keys::INCARNATIONS, GAP).await }
        })
        .await?;
        let short = (highest_known.0 + GAP).saturating_sub(n);
        if short > 0 {
            Self::bounded("skip incarnations", || {
                let mut c = self.connection.clone();
                async move { c.incr::<_, _, u64>(keys::INCARNATIONS, short).await }
            })
            .await?;
        }
        Ok(())
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
        Self::bounded("refresh registry", || {
            let (pipe, mut c) = (&pipe, self.connection.clone());
            async move { pipe.query_async(&mut c).await }
        })
        .await
    }

    /// Removes the record of a process that is gone.
    pub async fn remove(&self, key: &str) -> Result<(), StoreError> {
        Self::bounded("remove from registry", || {
            let mut c = self.connection.clone();
            async move { c.unlink(key).await }
        })
        .await
    }
}
