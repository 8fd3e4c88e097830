//! Announces this shard to the engine that leads, until the process ends or an engine refuses it for good.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use syncline_rpc::{
    CallError, EngineAddresses, EngineFault, EngineLink, OutageLogger, ReplicaRole, ShardHello,
    ShardRegistryClient,
    hello::{HelloError, Role},
    within,
};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};
use tarpc::client;
use tracing::info;

use super::{Options, Shared, role_change};
use crate::PsError;

/// Time between two announcements.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// The same while the engine has not decided what this process is to do.
const UNDECIDED_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the engine is told.
pub(super) fn hello(options: &Options, bound: SocketAddr) -> ShardHello {
    let address = options.advertise.clone().unwrap_or_else(|| bound.to_string());
    ShardHello::alone(ShardIndex(options.index), options.count, address, rand::random())
}

/// Announces the shard to the engine that leads, and retries whenever that fails. Returns only if waiting cannot help: no
/// engine has ever accepted the shard, and what it refuses are the settings of this process.
pub(super) async fn keep_announcing(
    shared: Arc<Shared>,
    engines: EngineAddresses,
    hello: ShardHello,
) -> PsError {
    let open = |transport| ShardRegistryClient::new(client::Config::default(), transport).spawn();
    let link = EngineLink::new(engines, Role::Shard, shared.token.clone(), open);
    let mut outage = OutageLogger::default();
    let mut pause = FIRST_PAUSE;
    let mut last_epoch: Option<EngineEpoch> = None;
    loop {
        let answer = {
            let hello = shared.role.complete_hello(&shared, &hello);
            link.call(|c| async move { c.announce(within(ANSWER_TIMEOUT), hello).await }).await
        };
        let failure = match answer {
            Ok(Ok(orders)) => {
                let (epoch, role, lead_expired) = (orders.epoch, orders.role, orders.lead_expired);
                outage.resolve("announced");
                if last_epoch.replace(epoch) != Some(epoch) {
                    info!(%epoch, engine = %link.addresses(), address = %hello.address, "announced");
                }
                if lead_expired {
                    link.try_another().await;
                } else if shared.jobs.fence().check(epoch).is_ok() {
                    // Of an engine of a past term, which may still answer, nothing counts.
                    let shared = shared.clone();
                    // It ends early only with the runtime.
                    let _ = tokio::task::spawn_blocking(move || role_change::follow_orders(&shared, &orders))
                        .await;
                }
                pause = FIRST_PAUSE;
                let interval = match role {
                    ReplicaRole::Undecided if !lead_expired => UNDECIDED_INTERVAL,
                    _ => HEARTBEAT_INTERVAL,
                };
                let _ = tokio::time::timeout(interval, shared.role.urgent()).await;
                continue;
            }
            Ok(Err(fault)) => refused(fault, link.addresses(), &hello),
            Err(error) => unreached(error, link.addresses()),
        };
        if failure.is_permanent()
            && (last_epoch.is_none() || matches!(failure, PsError::PositionTaken { .. }))
        {
            return failure;
        }
        outage.report(&failure, &failure.hint().unwrap_or_default());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn refused(fault: EngineFault, engines: &EngineAddresses, hello: &ShardHello) -> PsError {
    let (engine, index) = (engines.to_string(), hello.index.0);
    match fault {
        // This call is answered so only where the numbers differ.
        EngineFault::MissingShards { expected, .. } => {
            PsError::WrongPosition { engine, index, count: hello.count, expected }
        }
        EngineFault::ShardTaken { address, .. } => PsError::PositionTaken { engine, index, address },
        fault => PsError::EngineUnavailable { engine, cause: fault.to_string() },
    }
}

fn unreached(error: CallError, engines: &EngineAddresses) -> PsError {
    let engine = engines.to_string();
    match error {
        CallError::Hello(HelloError::Io(cause)) => {
            PsError::EngineUnavailable { engine, cause: cause.to_string() }
        }
        CallError::Hello(source) => PsError::EngineRefused { engine, source },
        lost => PsError::EngineUnavailable { engine, cause: lost.to_string() },
    }
}
