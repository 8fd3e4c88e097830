//! How a worker on this machine would reach the shards.

use std::time::Duration;

use syncline_ps::{client, transport::TransportChoice};
use syncline_rpc::{ShardPosition, Token};
use syncline_workers::{blocking, client::Client};

use super::{Exit, Finding};

const CHECK: &str = "transport";
/// Limit of each step of a connection.
const LIMIT: Duration = Duration::from_secs(5);

/// Connects to each shard as a worker does, and moves some bytes.
pub(super) async fn check(client: &Client, token: Token, wanted: TransportChoice) -> Finding {
    let addresses = match client.shards().await {
        Ok(addresses) => addresses,
        Err(error) => return Finding::warn(CHECK, error.to_string(), "ask again in a few seconds"),
    };
    blocking(move || try_all(&addresses, &token, wanted)).await
}

fn try_all(addresses: &[String], token: &Token, wanted: TransportChoice) -> Finding {
    let mut found = Vec::new();
    let count = addresses.len() as u32;
    for (index, address) in (0..).zip(addresses) {
        match client::try_path(address, ShardPosition { index, count }, token, LIMIT, wanted) {
            Ok(transport) => found.push(format!("{transport} to s{index}")),
            Err(error) => {
                return Finding::fail(
                    CHECK,
                    Exit::Unreachable,
                    error.to_string(),
                    error.hint().unwrap_or_default(),
                );
            }
        }
    }
    Finding::ok(CHECK, format!("a worker here would take {}", found.join(", ")))
}
