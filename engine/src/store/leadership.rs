//! Who leads: a lease in Redis, with an epoch that never comes twice.

use std::time::Duration;

use syncline_scheduler::ids::EngineEpoch;

use super::{error::StoreError, keys, redis_store::RedisStore};

impl RedisStore {
    /// Takes the lead; `None` if another engine is active. The epoch lies above `above`, too: Redis may have forgotten one that
    /// shards know.
    pub async fn take_lead(
        &self,
        instance: &str,
        lease: Duration,
        above: EngineEpoch,
        address: &str,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        self.lead(instance, lease, 0, above, address).await
    }

    /// Renews the lead of `epoch`; `None` if another engine has taken it.
    pub async fn renew_lead(
        &self,
        instance: &str,
        lease: Duration,
        epoch: EngineEpoch,
        address: &str,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        self.lead(instance, lease, epoch.0, EngineEpoch(0), address).await
    }

    async fn lead(
        &self,
        instance: &str,
        lease: Duration,
        held: u64,
        above: EngineEpoch,
        address: &str,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        let mut call = self.scripts.lead.prepare_invoke();
        call.key(keys::ENGINE).arg(instance).arg(lease.as_millis() as u64);
        call.arg(held).arg(address).arg(above.0);
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
