//! The connection to Redis that all clones of a store share.
//!
//! One that is lost reconnects by itself. One that is silent does not: the answer that it waits for may have
//! been lost on the way, with all that were to follow. So it is replaced as soon as a call was answered too
//! late. Nor does one whose password or database was refused, or that met another program: it repeats that
//! forever. The next one takes the password that is in the file by then.

use std::{
    error::Error,
    sync::{Mutex, PoisonError, RwLock, RwLockWriteGuard},
    time::{Duration, Instant},
};

use redis::{
    Client, RedisResult,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use syncline_rpc::{LogLimit, threads::lock};
use tracing::warn;

use super::RedisAddress;

/// At most one line in this time says that Redis gave no answer: while it is cut off that happens every few
/// seconds, for hours.
const SILENCE_LOG_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct SharedConnection {
    address: RedisAddress,
    current: RwLock<Current>,
    silences: Mutex<LogLimit>,
}

struct Current {
    manager: ConnectionManager,
    /// With the password that it was made with.
    client: Client,
    /// Of connections before it.
    number: u64,
    /// Why there is no other one yet, as it was logged.
    warned: Option<String>,
}

impl SharedConnection {
    /// Connects. Fails at once if nothing answers.
    pub(super) async fn open(address: RedisAddress, client: Client) -> RedisResult<Self> {
        let manager = ConnectionManager::new_with_config(client.clone(), config()).await?;
        let current = RwLock::new(Current { manager, client, number: 0, warned: None });
        Ok(Self { address, current, silences: Mutex::new(LogLimit::new(SILENCE_LOG_INTERVAL)) })
    }

    pub(super) fn address(&self) -> &RedisAddress {
        &self.address
    }

    /// The present connection, and its number.
    pub(super) fn get(&self) -> (ConnectionManager, u64) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (current.manager.clone(), current.number)
    }

    /// Leaves the connection of this number, unless somebody has before. The next call connects anew. Whether
    /// it was left now.
    pub(super) fn replace(&self, number: u64) -> bool {
        let mut current = self.current();
        current.number == number && self.renew(&mut current)
    }

    /// Leaves the connection of this number, over which no answer came in time, and says so now and then.
    pub(super) fn replace_silent(&self, number: u64) {
        if !self.replace(number) {
            return;
        }
        let due = lock(&self.silences).due(Instant::now());
        if let Some(before) = due {
            warn!(number, silent_before = before, "redis gave no answer; connecting anew");
        }
    }

    /// Leaves the connection of this number, whose password was refused. Whether there is another one by now.
    pub(super) fn replace_refused(&self, number: u64) -> bool {
        let mut current = self.current();
        if current.number != number {
            return true;
        }
        let before = current.client.clone();
        let password =
            |client: &Client| client.get_connection_info().redis_settings().password().map(str::to_owned);
        self.renew(&mut current) && password(&before) != password(&current.client)
    }

    fn renew(&self, current: &mut Current) -> bool {
        let client = self.address.client().map_err(|error| match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        });
        let connected = client.and_then(|client| {
            let manager = ConnectionManager::new_lazy_with_config(client.clone(), config());
            Ok((manager.map_err(|error| error.to_string())?, client))
        });
        match connected {
            Ok((manager, client)) => {
                *current = Current { manager, client, number: current.number + 1, warned: None };
                true
            }
            Err(error) => {
                // It is tried again several times a second.
                if current.warned.as_ref() != Some(&error) {
                    warn!(error, "cannot connect to redis anew");
                    current.warned = Some(error);
                }
                false
            }
        }
    }

    fn current(&self) -> RwLockWriteGuard<'_, Current> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_max_delay(Duration::from_millis(500))
        .set_connection_timeout(Some(Duration::from_secs(2)))
        .set_response_timeout(None)
}
