//! The parameter shards as the engine reaches them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use syncline_scheduler::ids::{EngineEpoch, ShardIndex};
use tokio::{sync::watch, time::timeout};
use tracing::debug;

use crate::rpc::{
    CallError, EngineFault, Reconnecting, ShardClient, ShardHello, Token, connect, hello::Role, within,
};

/// A shard that announced itself.
#[derive(Clone)]
pub(super) struct ShardEntry {
    pub hello: ShardHello,
    pub seen: Instant,
    client: Reconnecting<ShardClient>,
}

/// The outcome of an announcement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    New,
    Known,
    /// Another process, at this address, serves the same index.
    Taken(String),
}

/// All shards; clones share them.
#[derive(Clone)]
pub(super) struct ShardDirectory {
    count: u32,
    token: Token,
    known: Arc<Mutex<BTreeMap<ShardIndex, ShardEntry>>>,
    changed: watch::Sender<u64>,
}

/// How long a shard has to answer when another process announces the same index.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two tries to reach a shard.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

impl ShardDirectory {
    pub(super) fn new(count: u32, token: Token) -> Self {
        Self { count, token, known: Arc::default(), changed: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShardIndex, ShardEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..self.count).map(ShardIndex)
    }

    /// Records a sign of life of a shard. If another process serves the same index, that one stays as long as it answers.
    pub(super) async fn announce(&self, hello: ShardHello, epoch: EngineEpoch) -> Announcement {
        let old = {
            let mut known = self.lock();
            match known.get_mut(&hello.index) {
                Some(old) if old.hello == hello => {
                    old.seen = Instant::now();
                    return Announcement::Known;
                }
                // Two processes cannot listen at one address: the old one has ended, and its successor would answer.
                Some(old) if old.hello.address == hello.address => None,
                other => other.map(|old| (old.hello.address.clone(), old.client.clone())),
            }
        };
        if let Some((address, client)) = old {
            let answers = client.call(|c| async move { c.held(within(PING_TIMEOUT), epoch).await });
            if timeout(PING_TIMEOUT, answers).await.is_ok_and(|answer| answer.is_ok()) {
                return Announcement::Taken(address);
            }
        }
        let (address, token) = (hello.address.clone(), self.token.clone());
        let client = Reconnecting::new(move || {
            let (address, token) = (address.clone(), token.clone());
            async move {
                let transport = connect(&address, Role::Control, &token).await?;
                Ok(ShardClient::new(tarpc::client::Config::default(), transport).spawn())
            }
        });
        self.lock().insert(hello.index, ShardEntry { hello, seen: Instant::now(), client });
        self.changed.send_modify(|n| *n += 1);
        Announcement::New
    }

    /// Does not count `late` as silence: this process was not awake in that time.
    pub(super) fn extend_deadlines(&self, late: Duration) {
        let now = Instant::now();
        for known in self.lock().values_mut() {
            known.seen = (known.seen + late).min(now);
        }
    }

    /// Forgets a shard that is silent.
    pub(super) fn forget(&self, index: ShardIndex) {
        self.lock().remove(&index);
    }

    /// Forgets all: they announced themselves in an earlier epoch.
    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    pub(super) fn all(&self) -> Vec<ShardEntry> {
        self.lock().values().cloned().collect()
    }

    /// The fault for a call that needs all shards while some are missing.
    pub(super) fn missing_fault(&self) -> EngineFault {
        let present = u32::try_from(self.lock().len()).unwrap_or(u32::MAX);
        EngineFault::MissingShards { present, expected: self.count }
    }

    /// Addresses of all shards in order, if all are there.
    pub(super) fn addresses(&self) -> Option<Vec<String>> {
        let known = self.lock();
        self.indices().map(|i| Some(known.get(&i)?.hello.address.clone())).collect()
    }

    /// The same, waiting until all are there.
    pub(super) async fn all_addresses(&self) -> Vec<String> {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(addresses) = self.addresses() {
                return addresses;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn client(&self, index: ShardIndex) -> Reconnecting<ShardClient> {
        let mut changed = self.changed.subscribe();
        loop {
            let client = self.lock().get(&index).map(|k| k.client.clone());
            if let Some(client) = client {
                return client;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Calls one shard, again and again until it answers. Only for calls that may be repeated.
    pub(super) async fn call<T, F>(&self, index: ShardIndex, call: impl Fn(ShardClient) -> F) -> T
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        loop {
            match self.client(index).await.call(&call).await {
                Ok(value) => return value,
                Err(error) => debug!(shard = %index, error = %describe(&error), "shard does not answer yet"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Calls one shard once, if it is there.
    pub(super) async fn call_if_present<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let client = self.lock().get(&index).map(|k| k.client.clone())?;
        Some(client.call(call).await)
    }

    /// Calls one shard once.
    pub(super) async fn call_once<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.client(index).await.call(call).await
    }
}

fn describe(error: &CallError) -> String {
    match error {
        CallError::Lost(cause) => format!("{error}: {cause}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rpc::ShardResponse,
        service::fake_shard::{EPOCH, start, token},
    };

    #[tokio::test]
    async fn a_second_process_gets_a_place_only_once_the_first_does_not_answer() {
        let held = |_| ShardResponse::Held(Ok(Vec::new()));
        let (first, second) = (start(0, held).await, start(0, held).await);
        let gone = ShardHello { address: "127.0.0.1:1".into(), ..first.clone() };
        let directory = ShardDirectory::new(1, token());
        assert_eq!(directory.announce(gone, EPOCH).await, Announcement::New);
        assert_eq!(directory.announce(first.clone(), EPOCH).await, Announcement::New, "nobody answers there");
        assert_eq!(directory.announce(first.clone(), EPOCH).await, Announcement::Known);
        let taken = Announcement::Taken(first.address.clone());
        assert_eq!(directory.announce(second, EPOCH).await, taken);
        let restarted = ShardHello { boot: 2, ..first };
        assert_eq!(directory.announce(restarted, EPOCH).await, Announcement::New, "at the same address");
    }

    #[tokio::test]
    async fn who_needs_all_shards_waits_until_the_last_one_is_there() {
        let directory = ShardDirectory::new(2, token());
        let hello =
            |index| ShardHello { index: ShardIndex(index), count: 2, address: format!("a:{index}"), boot: 1 };
        assert_eq!(directory.announce(hello(1), EPOCH).await, Announcement::New);
        assert_eq!(directory.addresses(), None);
        assert_eq!(directory.missing_fault(), EngineFault::MissingShards { present: 1, expected: 2 });
        let mut all = std::pin::pin!(directory.all_addresses());
        assert!(futures::poll!(all.as_mut()).is_pending());
        assert_eq!(directory.announce(hello(0), EPOCH).await, Announcement::New);
        assert_eq!(all.await, ["a:0", "a:1"]);
        directory.forget(ShardIndex(0));
        assert_eq!(directory.addresses(), None);
        let absent = directory.call_if_present(ShardIndex(0), |c| async move {
            c.has_blobs(within(PING_TIMEOUT), vec![]).await
        });
        assert!(absent.await.is_none());
    }
}
