//! Soft state: who is alive. Kept with expiry, outside the commits, for people and for incarnation numbers.

use redis::AsyncCommands;
use syncline_scheduler::ids::Incarnation;

use super::{error::StoreError, keys, redis_store::RedisStore};

/// A process that is not refreshed for this long disappears from the registry.
const ALIVE_EXPIRY_S: i64 = 10;

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
