//! Who leads: a lease in Redis, with an epoch that never comes twice.

use std::{collections::BTreeMap, time::Duration};

use redis::Value;
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

/// Where an engine listens, and of which cluster it is.
#[derive(Debug, Clone, Copy)]
pub struct LeaderAt<'a> {
    /// As others reach it.
    pub address: &'a str,
    /// The same text for all engines of a cluster, and another one for those of others.
    pub cluster: &'a str,
}

/// Which lease of its own name an engine takes before that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnLease {
    /// The one of its own address: it has been started again.
    #[default]
    Here,
    /// Any: nobody renews it.
    Anywhere,
    /// None: another process has the same name.
    Nowhere,
}

/// What a lease that is taken must lie beyond.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beyond {
    /// Redis may have forgotten an epoch that shards know.
    pub epoch: EngineEpoch,
    /// A store that shows a lease from before this one has gone back, and the engine that leads writes again
    /// what is lost as soon as it has reached it.
    pub seen: SeenLease,
    /// Which lease of its own name the engine does not wait for.
    pub own: OwnLease,
}

/// What an engine asks of the lease.
enum LeadCall {
    Take(Beyond),
    Renew { epoch: EngineEpoch, clock_ms: Option<u64> },
}

impl OwnLease {
    fn word(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Anywhere => "anywhere",
            Self::Nowhere => "nowhere",
        }
    }
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
    /// Takes the lead; `None` if another engine is active, or the lease would not lie beyond what it must.
    pub async fn take_lead(
        &self,
        instance: &str,
        lease: Duration,
        at: LeaderAt<'_>,
        beyond: Beyond,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        self.lead(instance, lease, at, LeadCall::Take(beyond)).await
    }

    /// Renews the lead of `epoch`; `None` if another engine has taken it. Tells the next engine the clock of
    /// this one, in epoch ms, if there is one to tell.
    pub async fn renew_lead(
        &self,
        instance: &str,
        lease: Duration,
        at: LeaderAt<'_>,
        epoch: EngineEpoch,
        clock_ms: Option<u64>,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        self.lead(instance, lease, at, LeadCall::Renew { epoch, clock_ms }).await
    }

    /// What the clock of the engine that led last had come to, in epoch ms; `None` if nobody knows.
    pub async fn last_clock_ms(&self) -> Result<Option<u64>, StoreError> {
        let told = self.hash("read the clock", keys::ENGINE).await?;
        Ok(told.get("clock_ms").and_then(|ms| ms.parse().ok()))
    }

    async fn lead(
        &self,
        instance: &str,
        lease: Duration,
        at: LeaderAt<'_>,
        asked: LeadCall,
    ) -> Result<Option<EngineEpoch>, StoreError> {
        // The script takes 0 for an epoch and for a clock that there is not.
        let (held, clock_ms, Beyond { epoch: above, seen, own }) = match asked {
            LeadCall::Take(beyond) => (0, 0, beyond),
            LeadCall::Renew { epoch, clock_ms } => (epoch.0, clock_ms.unwrap_or(0), Beyond::default()),
        };
        let mut call = self.scripts.lead.prepare_invoke();
        call.key(keys::ENGINE).arg(instance).arg(lease.as_millis() as u64);
        call.arg(held).arg(at.address).arg(above.0).arg(clock_ms);
        call.arg(seen.epoch).arg(seen.until_ms).arg(own.word()).arg(at.cluster);
        let answer: Value = self
            .bounded("lead", || {
                let (call, mut connection) = (&call, self.connection());
                async move { call.invoke_async(&mut connection).await }
            })
            .await?;
        // A lead that the script has not given is none, and a renewal that it has not refused is no loss.
        let epoch = epoch_in(&answer).ok_or_else(|| StoreError::foreign("lead", &self.address()))?;
        Ok((epoch > 0).then_some(EngineEpoch(epoch)))
    }
}

/// The epoch, where the script has answered: by a text.
fn epoch_in(answer: &Value) -> Option<u64> {
    match answer {
        Value::BulkString(text) => str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}
