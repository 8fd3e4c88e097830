//! The connection to Redis that all clones of a store share.
//!
//! One that is lost reconnects by itself. One that is silent does not: the answer that it waits for may have been lost on the
//! way, with all that were to follow. So it is replaced as soon as a call was answered too late. Nor does one whose password was
//! refused: it repeats that for ever.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use redis::{
    Client, RedisResult,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tracing::warn;

pub(super) struct SharedConnection {
    client: Client,
    /// With the number of connections before it.
    current: RwLock<(ConnectionManager, u64)>,
}

impl SharedConnection {
    /// Connects. Fails at once if nothing answers.
    pub(super) async fn open(client: Client) -> RedisResult<Self> {
        let first = ConnectionManager::new_with_config(client.clone(), config()).await?;
        Ok(Self { client, current: RwLock::new((first, 0)) })
    }

    /// The present connection, and its number.
    pub(super) fn get(&self) -> (ConnectionManager, u64) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves the connection of this number, unless somebody has before. The next call connects anew. Whether it was left now.
    pub(super) fn replace(&self, number: u64) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.1 != number {
            return false;
        }
        match ConnectionManager::new_lazy_with_config(self.client.clone(), config()) {
            Ok(next) => {
                *current = (next, number + 1);
                true
            }
            Err(error) => {
                warn!(%error, "cannot connect to redis anew");
                false
            }
        }
    }
}

fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_max_delay(Duration::from_millis(500))
        .set_connection_timeout(Some(Duration::from_secs(2)))
        .set_response_timeout(None)
}
