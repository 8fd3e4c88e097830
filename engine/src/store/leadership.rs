//! Who leads: a lease in Redis, with an epoch that never comes twice.

use std::{collections::BTreeMap, time::Duration};

use syncline_scheduler::ids::EngineEpoch;

use super::{error::StoreError, keys, redis_store::RedisStore};

/// A lease as it stood in Redis. Whatever a store shows later is later, unless it has gone back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeenLease {
    /// Of the engine that had it.
    pub epoch: u64,
    /// Its end, in ms on the clock of Redis; 0 if it was given up.
    pub until_ms: u64,
}

impl SeenLease {
    /// What the record of a lease says.
    pub fn of(fields: &BTreeMap<String, String>) -> Self {
        let number = |name| fields.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self { epoch: number("epoch"), until_ms: number("until_ms") }
    }

    /// Whether a store that shows this has shown `seen` before, and has gone back since.
    pub fn is_before(&self, seen: &Self) -> bool {
        let ended_earlier = self.until_ms != 0 && self.until_ms < seen.until_ms;
        self.epoch < seen.epoch || self.epoch == seen.epoch && ended_earlier
    }
}

impl RedisStore {
    /// Takes the lead; `None` if another engine is active. The epoch lies above `above`, too: Redis may have forgotten one that
    /// shards know. Nor does anybody take it in a store that shows a lease from before `seen`: it has gone back, and the engine that
    /// leads writes again what is lost, as soon as it has reached it.
    pub async fn take_lead(
        &self,
        instance: &str,
        lease: Duration,
        above: EngineEpoch,
        address: &str,
        seen: SeenLease,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        self.lead(instance, lease, 0, address, 0, (above, seen)).await
    }

    /// Renews the lead of `epoch`; `None` if another engine has taken it. Tells the next engine the clock of this one, in epoch
    /// ms; at 0 it does not.
    pub async fn renew_lead(
        &self,
        instance: &str,
        lease: Duration,
        epoch: EngineEpoch,
        address: &str,
        clock_ms: u64,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        let beyond = (EngineEpoch(0), SeenLease::default());
        self.lead(instance, lease, epoch.0, address, clock_ms, beyond).await
    }

    /// What the clock of the engine that led last had come to, in epoch ms; `None` if nobody knows.
    pub async fn last_clock_ms(&self) -> Result<Option<u64>, StoreError> {
        let told = self.hash("read the clock", keys::ENGINE).await?;
        Ok(told.get("clock_ms").and_then(|ms| ms.parse().ok()))
    }

    /// `held`: the epoch of this engine, 0 if it takes the lead. `beyond`: what the lease must lie beyond then.
    async fn lead(
        &self,
        instance: &str,
        lease: Duration,
        held: u64,
        address: &str,
        clock_ms: u64,
        (above, seen): (EngineEpoch, SeenLease),
    ) -> Result<Option<EngineEpoch>, StoreError> {
        let mut call = self.scripts.lead.prepare_invoke();
        call.key(keys::ENGINE).arg(instance).arg(lease.as_millis() as u64);
        call.arg(held).arg(address).arg(above.0).arg(clock_ms).arg(seen.epoch).arg(seen.until_ms);
        let epoch: String = self
            .bounded("lead", || {
                let (call, mut connection) = (&call, self.connection());
                async move { call.invoke_async(&mut connection).await }
            })
            .await?;
        let epoch: u64 = epoch.parse().unwrap_or(0);
        Ok((epoch > 0).then_some(EngineEpoch(epoch)))
    }
}
