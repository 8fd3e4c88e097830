//! Telling the engine that leads that this shard is there, for ever, unless the engine will never have it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use syncline_engine::rpc::{
    CallError, EngineAddresses, EngineFault, EngineLink, Outage, ShardHello, ShardRegistryClient,
    hello::{HelloError, Role},
    within,
};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};
use tarpc::client;
use tracing::info;

use super::{Options, Shared};
use crate::PsError;

/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// Longest wait for one answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
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

/// Announces to whichever engine leads, and starts again whenever that fails. Returns when waiting cannot help: no engine
/// was ever heard, and what is wrong is what we were told at the start.
pub(super) async fn keep_announcing(
    shared: Arc<Shared>,
    engines: EngineAddresses,
    hello: ShardHello,
) -> PsError {
    let open = |transport| ShardRegistryClient::new(client::Config::default(), transport).spawn();
    let link = EngineLink::new(engines, Role::Shard, shared.token.clone(), open);
    let mut outage = Outage::default();
    let mut pause = FIRST_PAUSE;
    let mut heard: Option<EngineEpoch> = None;
    loop {
        let answer = {
            let hello = hello.clone();
            link.call(|c| async move { c.announce(within(ANSWERS_WITHIN), hello).await }).await
        };
        let trouble = match answer {
            Ok(Ok(epoch)) => {
                outage.is_over("announced");
                if heard.replace(epoch) != Some(epoch) {
                    info!(%epoch, engine = %link.addresses(), address = %hello.address, "announced");
                }
                // An engine of a past term may still answer; its epoch changes nothing.
                let _ = shared.house.fence().check(epoch);
                pause = FIRST_PAUSE;
                tokio::time::sleep(BEAT).await;
                continue;
            }
            Ok(Err(fault)) => refused(fault, link.addresses(), &hello),
            Err(error) => unreached(error, link.addresses()),
        };
        if trouble.is_final() && (heard.is_none() || matches!(trouble, PsError::Taken { .. })) {
            return trouble;
        }
        outage.goes_on(&trouble, trouble.hint());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn refused(fault: EngineFault, engines: &EngineAddresses, hello: &ShardHello) -> PsError {
    let (engine, index) = (engines.to_string(), hello.index.0);
    match fault {
        // This call is answered so only where the numbers differ.
        EngineFault::MissingShards { expected, .. } => {
            PsError::WrongPlace { engine, index, count: hello.count, expected }
        }
        EngineFault::ShardTaken { address, .. } => PsError::Taken { engine, index, address },
        fault => PsError::EngineAway { engine, cause: fault.to_string() },
    }
}

fn unreached(error: CallError, engines: &EngineAddresses) -> PsError {
    let engine = engines.to_string();
    match error {
        CallError::Hello(HelloError::Io(cause)) => PsError::EngineAway { engine, cause: cause.to_string() },
        CallError::Hello(source) => PsError::EngineRefuses { engine, source },
        lost => PsError::EngineAway { engine, cause: lost.to_string() },
    }
}
