//! Announces this shard to the engine that leads, until the process ends or an engine refuses it for good.

use std::{
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::Duration,
};

use syncline_rpc::{
    CallError, EngineAddresses, EngineFault, EngineLink, NoDescriptor, OutageLogger, ReplicaRole, ShardHello,
    ShardOrders, ShardRegistryClient,
    hello::{HelloError, Role},
    threads, within,
};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};
use tarpc::client;
use tokio::sync::oneshot;
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

/// A thread that does what the engine has answered: its own, so that orders which wait for a standby, on all
/// others, do not hold up the news that it is lost. It ends when this is dropped, with the runtime.
struct OrderFollower(mpsc::Sender<Answer>);

/// What the engine has answered, to whom, and who is told when it is done.
type Answer = (Arc<Shared>, ShardOrders, oneshot::Sender<()>);

impl OrderFollower {
    fn start() -> io::Result<Self> {
        let (answers, answered) = mpsc::channel::<Answer>();
        let follow = move || {
            for (shared, orders, done) in answered {
                // What a bug ends is one answer: the next one comes in a moment.
                let _ = catch_unwind(AssertUnwindSafe(|| role_change::follow_orders(&shared, &orders)));
                drop(shared);
                let _ = done.send(());
            }
        };
        threads::spawn("ps-role", follow)?;
        Ok(Self(answers))
    }

    async fn follow(&self, shared: Arc<Shared>, orders: ShardOrders) {
        let (done, is_done) = oneshot::channel();
        // The thread is there as long as this is.
        let _ = self.0.send((shared, orders, done));
        let _ = is_done.await;
    }
}

/// What the engine is told.
pub(super) fn hello(options: &Options, bound: SocketAddr) -> ShardHello {
    let address = options.advertise.clone().unwrap_or_else(|| bound.to_string());
    ShardHello::alone(ShardIndex(options.index), options.count, address, rand::random())
}

/// Announces the shard to the engine that leads, and retries whenever that fails. Returns only if waiting
/// cannot help: no engine has ever accepted the shard, and what it refuses are the settings of this process.
pub(super) async fn keep_announcing(
    shared: Arc<Shared>,
    engines: EngineAddresses,
    hello: ShardHello,
) -> PsError {
    let open = |transport| ShardRegistryClient::new(client::Config::default(), transport).spawn();
    let link = EngineLink::new(engines, Role::Shard, shared.token.clone(), open);
    let follower = match OrderFollower::start() {
        Ok(follower) => follower,
        Err(source) => {
            return PsError::Io { what: "cannot start the thread that follows the engine".into(), source };
        }
    };
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
                    follower.follow(shared.clone(), orders).await;
                }
                pause = FIRST_PAUSE;
                let interval = match role {
                    ReplicaRole::Undecided if !lead_expired => UNDECIDED_INTERVAL,
                    _ => HEARTBEAT_INTERVAL,
                };
                let _ = tokio::time::timeout(interval, shared.role.urgent()).await;
                continue;
            }
            Ok(Err(fault)) => refused(fault, &link, &hello),
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

fn refused(fault: EngineFault, link: &EngineLink<ShardRegistryClient>, hello: &ShardHello) -> PsError {
    let (engine, index) = (link.addresses().to_string(), hello.index.0);
    match fault {
        // This call is answered so only where the numbers differ.
        EngineFault::MissingShards { expected, .. } => {
            PsError::WrongPosition { engine, index, count: hello.count, expected }
        }
        // Only the one that leads answers so, and it may be none of those that were named: they stand by.
        EngineFault::ShardTaken { address, .. } => {
            PsError::PositionTaken { engine: link.last_called(), index, address }
        }
        fault => PsError::EngineUnavailable { engine, cause: fault.to_string() },
    }
}

fn unreached(error: CallError, engines: &EngineAddresses) -> PsError {
    let engine = engines.to_string();
    match error {
        CallError::Hello(HelloError::Io(cause)) => match NoDescriptor::behind(&cause) {
            Some(ours) => ours.into(),
            None => PsError::EngineUnavailable { engine, cause: cause.to_string() },
        },
        CallError::Hello(source) => PsError::EngineRefused { engine, source },
        lost => PsError::EngineUnavailable { engine, cause: lost.to_string() },
    }
}
