//! Work with values that lie on the parameter server, whose shards may move meanwhile.

use std::{pin::pin, time::Duration};

use syncline_ps::client::{Addresses, CancelOnDrop, CancelToken};
use tokio::time::sleep;

use super::{Client, ClientError};
use crate::{blocking, functions::ShardValues};

/// How often the engine is asked where the shards are while values are stored or fetched, which may take
/// minutes.
const ADDRESSES_INTERVAL: Duration = Duration::from_secs(1);

impl Client {
    /// Does what blocks with the store of large values. It is canceled where nobody waits for it any more.
    pub(super) async fn with_values<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ShardValues, &CancelToken) -> T + Send + 'static,
    ) -> Result<T, ClientError> {
        let addresses = Addresses::from(&self.shards().await?[..]);
        let store = ShardValues::new(self.token.clone(), addresses.clone());
        let canceled = CancelOnDrop::default();
        let cancel_token = canceled.token();
        let work = blocking(move || work(&store, &cancel_token));
        Ok(while_following(&addresses, ADDRESSES_INTERVAL, || self.shards(), work).await)
    }
}

/// Waits for `work`, and keeps the addresses that it uses as `ask` tells them.
async fn while_following<T, F: Future<Output = Result<Vec<String>, ClientError>>>(
    addresses: &Addresses,
    interval: Duration,
    ask: impl Fn() -> F,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        let asked = async {
            sleep(interval).await;
            ask().await
        };
        tokio::select! {
            done = &mut work => return done,
            // As long as the engine does not hear of all shards nobody knows better.
            now = asked => now.into_iter().for_each(|now| addresses.set(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use syncline_rpc::EngineFault;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn whoever_stores_values_for_long_learns_where_a_shard_is_that_has_moved() {
        let at = |address: &str| vec![address.to_owned()];
        let (addresses, asked) = (Addresses::from(&at("a:1")[..]), Cell::new(0));
        let ask = || {
            asked.set(asked.get() + 1);
            let is_first = asked.get() == 1;
            async move {
                match is_first {
                    true => Err(EngineFault::MissingShards { present: 0, expected: 1 }.into()),
                    false => Ok(at("b:1")),
                }
            }
        };
        let work = async {
            while addresses.get() != at("b:1") {
                yield_now().await;
            }
        };
        while_following(&addresses, Duration::ZERO, ask, work).await;
        assert_eq!(asked.get(), 2);
    }
}
