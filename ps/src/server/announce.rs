//! Telling the engine that this shard is there, for ever.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use syncline_engine::rpc::{
    ShardHello, ShardRegistryClient, ShardRegistryRequest, ShardRegistryResponse, connect, hello::Role,
};
use syncline_scheduler::ids::ShardIndex;
use tarpc::{client, context};
use tracing::{debug, info};

use super::{Options, Shared};

/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the engine is told.
pub(super) fn hello(options: &Options, bound: SocketAddr) -> ShardHello {
    ShardHello {
        index: ShardIndex(options.index),
        count: options.count,
        address: options.advertise.clone().unwrap_or_else(|| bound.to_string()),
        boot: rand::random(),
    }
}

/// Connects to the engine, announces, and starts again whenever that fails.
pub(super) async fn keep_announcing(shared: Arc<Shared>, engine: String, hello: ShardHello) {
    let mut pause = FIRST_PAUSE;
    loop {
        match connect::<ShardRegistryRequest, ShardRegistryResponse>(&engine, Role::Shard, &shared.token)
            .await
        {
            Ok(transport) => {
                let client = ShardRegistryClient::new(client::Config::default(), transport).spawn();
                if announce(&shared, &client, &hello).await {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) => debug!(%engine, %error, "the engine cannot be reached"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Announces until the connection breaks; whether the engine has answered at all.
async fn announce(shared: &Shared, client: &ShardRegistryClient, hello: &ShardHello) -> bool {
    let mut heard = false;
    loop {
        match client.announce(context::current(), hello.clone()).await {
            Ok(Ok(epoch)) => {
                if !heard {
                    info!(%epoch, address = %hello.address, "announced");
                }
                heard = true;
                // An engine of a past term may still answer; its epoch changes nothing.
                let _ = shared.house.fence().check(epoch);
            }
            Ok(Err(fault)) => debug!(%fault, "the engine did not take the announcement"),
            Err(error) => {
                debug!(%error, "the connection to the engine broke");
                return heard;
            }
        }
        tokio::time::sleep(BEAT).await;
    }
}
