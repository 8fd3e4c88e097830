//! Starts an engine, keeps it on standby while another one is active, and stops it.

use std::{
    any::Any,
    collections::BTreeMap,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use syncline_scheduler::ids::EngineEpoch;
use tarpc::server::Channel;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tracing::{error, info, warn};

use super::{
    blob_gc::collect_periodically,
    clock::Clock,
    context::{ClientHandler, ServiceContext, ShardHandler, WorkerHandler},
    decision_loop::{DecisionLoop, LoopEnd},
    dispatcher::EffectDispatcher,
    liveness::{drop_worker, monitor_liveness},
    message::Message,
    sessions::Sessions,
    shards::ShardDirectory,
};
use crate::{
    rpc::{
        ClientService, InactiveReason, Outage, ShardRegistry, Token, WorkerService, accept, answer_calls,
        channel, hello::Role,
    },
    store::{RedisStore, StoreError, keys},
};

/// Length of the leadership lease; renewed three times in it.
const LEASE_DURATION: Duration = Duration::from_secs(3);
/// A worker whose connection closed may come back within this time.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Settings of one engine process.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    pub token: Token,
    /// Address of the Redis server.
    pub redis: String,
    /// Stable name of this engine: after a crash it takes its own lead back at once.
    pub instance: String,
    /// Shards of the parameter server.
    pub shards: u32,
    pub limits: Limits,
}

/// How long the engine waits for signs of life. Only time in which the engine itself was awake counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A worker that is not heard of for this long is dropped.
    pub worker_silence: Duration,
    /// A parameter shard that is not heard of for this long is lost, with the jobs it holds.
    pub shard_silence: Duration,
    /// A worker that has been busy with one task for this long, and for twenty times its longest so far, is dropped.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            worker_silence: Duration::from_secs(5),
            shard_silence: Duration::from_secs(30),
            stall: Duration::from_secs(300),
        }
    }
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error("[E240] cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A running engine.
pub struct Engine;

/// Holds an engine; dropping it stops the engine at once, as a crash would.
pub struct EngineHandle {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
    active: watch::Receiver<Result<EffectDispatcher, InactiveReason>>,
    panicked: watch::Receiver<Option<String>>,
}

impl EngineHandle {
    /// Where the engine listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until this engine is the active one.
    pub async fn active(&mut self) {
        // The sender lives as long as the engine's own task.
        let _ = self.active.wait_for(Result::is_ok).await;
    }

    /// Waits until this engine has a bug, and says which: it decides nothing any more and should end as a process, so that
    /// a standby or its supervisor takes over.
    pub async fn panicked(&mut self) -> String {
        match self.panicked.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        if let Ok(dispatcher) = &*self.active.borrow() {
            dispatcher.stop();
        }
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Engine {
    /// Listens and connects to Redis; both fail at once. Must be called inside a tokio runtime.
    pub async fn start(options: EngineOptions) -> Result<EngineHandle, EngineError> {
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(|source| EngineError::Listen { address: options.listen, source })?;
        let address = listener
            .local_addr()
            .map_err(|source| EngineError::Listen { address: options.listen, source })?;
        let store = RedisStore::connect(&options.redis).await?;
        let shards = ShardDirectory::new(options.shards, options.token.clone());
        let (activate, active) = watch::channel(Err(InactiveReason::Changing));
        let (tell, panicked) = watch::channel(None);
        let context = ServiceContext {
            active: active.clone(),
            store: store.clone(),
            shards: shards.clone(),
            limits: options.limits,
            about: Arc::new(about(&options, address)),
        };
        let serve = {
            let context = context.clone();
            move |role, stream| serve(context.clone(), role, stream)
        };
        const SERVED: &[Role] = &[Role::Client, Role::Worker, Role::Shard];
        let tasks = vec![
            tokio::spawn(accept(listener, options.token.clone(), SERVED, serve)),
            tokio::spawn(monitor_liveness(context)),
            tokio::spawn(async move {
                let leading = lead(options, store, shards, activate.clone(), address);
                report_panic(leading, &activate, &tell).await;
            }),
        ];
        Ok(EngineHandle { address, tasks, active, panicked })
    }
}

/// Runs until the end; a panic is told to whoever holds the engine, and leaves nobody active.
async fn report_panic(
    leading: impl Future<Output = ()>,
    activate: &watch::Sender<Result<EffectDispatcher, InactiveReason>>,
    panicked: &watch::Sender<Option<String>>,
) {
    if let Err(panic) = AssertUnwindSafe(leading).catch_unwind().await {
        let reason = describe(panic.as_ref());
        error!(reason, "the engine has a bug and decides nothing any more");
        drop(activate.send_replace(Err(InactiveReason::Changing)));
        panicked.send_replace(Some(reason));
    }
}

fn about(options: &EngineOptions, address: SocketAddr) -> BTreeMap<String, String> {
    [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("address", address.to_string()),
        ("redis", crate::store::redacted(&options.redis)),
        ("shards", options.shards.to_string()),
        ("instance", options.instance.clone()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into()
}

/// The words of a panic.
fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

async fn serve(context: ServiceContext, role: Role, stream: TcpStream) {
    match role {
        Role::Client => answer_calls(channel(stream).execute(ClientHandler(context).serve())).await,
        Role::Shard => answer_calls(channel(stream).execute(ShardHandler(context).serve())).await,
        Role::Worker => {
            let last_worker = Arc::default();
            let connection = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
            let worker =
                WorkerHandler { context: context.clone(), connection, last_worker: Arc::clone(&last_worker) };
            answer_calls(channel(stream).execute(worker.serve())).await;
            let last_worker: &Mutex<_> = &last_worker;
            let Some(worker) = *last_worker.lock().unwrap_or_else(PoisonError::into_inner) else { return };
            sleep(CLOSED_GRACE).await;
            let Ok(dispatcher) = context.dispatcher() else { return };
            if dispatcher.sessions.connection(worker) == Some(connection) {
                drop_worker(&context, worker, "its connection closed");
            }
        }
        Role::Control | Role::Tensor => {}
    }
}

/// Takes the lead whenever it is free, and is the active engine until it is deposed.
async fn lead(
    options: EngineOptions,
    store: RedisStore,
    shards: ShardDirectory,
    activate: watch::Sender<Result<EffectDispatcher, InactiveReason>>,
    address: SocketAddr,
) {
    let clock = Clock::start();
    let address = address.to_string();
    let mut outage = Outage::default();
    loop {
        let epoch = match store.lead(&options.instance, LEASE_DURATION, None, &address).await {
            Ok(Some(epoch)) => epoch,
            Ok(None) => {
                outage.resolve("Redis answers");
                drop(activate.send_replace(Err(current_leader(&store, &address).await)));
                sleep(LEASE_DURATION / 10).await;
                continue;
            }
            Err(error) => {
                outage.report(
                    &error,
                    "this engine cannot lead until Redis lets it: `syncline doctor` checks it",
                );
                drop(activate.send_replace(Err(InactiveReason::Store { cause: error.to_string() })));
                sleep(LEASE_DURATION / 10).await;
                continue;
            }
        };
        outage.resolve("Redis answers");
        // They talk to whoever led meanwhile, and announce themselves again once they find us.
        shards.forget_all();
        let (queue, inbox) = mpsc::unbounded_channel();
        let dispatcher = EffectDispatcher::new(epoch, Sessions::default(), shards.clone(), queue, clock);
        let leads = || async {
            let renewed = store.lead(&options.instance, LEASE_DURATION, Some(epoch), &address).await;
            matches!(renewed, Ok(Some(_)))
        };
        let active = match DecisionLoop::load(store.clone(), epoch, dispatcher.clone(), clock, leads).await {
            Ok(active) => active,
            Err(error) => {
                warn!(instance = options.instance, %epoch, %error, "cannot load the jobs yet");
                drop(activate.send_replace(Err(InactiveReason::Store { cause: error.to_string() })));
                dispatcher.stop();
                sleep(LEASE_DURATION / 10).await;
                continue;
            }
        };
        info!(%epoch, "this engine is active");
        drop(activate.send_replace(Ok(dispatcher.clone())));
        for shard in shards.all() {
            dispatcher.query_held_jobs(shard.hello.index);
        }
        dispatcher.broadcast_addresses();
        // Ends with this scope, in whatever way: a lead that nobody exercises must not be renewed.
        let mut renewal = JoinSet::new();
        renewal.spawn(collect_periodically(store.clone(), dispatcher.clone()));
        renewal.spawn(renew_lease(options.clone(), store.clone(), epoch, dispatcher, address.clone()));
        let ended = active.run(inbox).await;
        drop(renewal);
        drop(activate.send_replace(Err(InactiveReason::Changing)));
        warn!(instance = options.instance, %epoch, ?ended, "this engine is no longer active");
        if matches!(ended, LoopEnd::Stopped) {
            return;
        }
    }
}

/// Who leads instead of this engine.
async fn current_leader(store: &RedisStore, mine: &str) -> InactiveReason {
    let mut leader = match store.hash("read the lead", keys::ENGINE).await {
        Ok(leader) => leader,
        Err(error) => return InactiveReason::Store { cause: error.to_string() },
    };
    let mut field = |name| leader.remove(name).unwrap_or_default();
    let (instance, address) = (field("instance"), field("address"));
    // Two that listen everywhere have one address; otherwise it was this one before it was started again.
    let unspecified = address.parse::<SocketAddr>().is_ok_and(|a| a.ip().is_unspecified());
    if address == mine && !unspecified {
        InactiveReason::Changing
    } else {
        InactiveReason::Standby { instance, address }
    }
}

/// Keeps the lead, and tells the loop when somebody else has it.
async fn renew_lease(
    options: EngineOptions,
    store: RedisStore,
    epoch: EngineEpoch,
    dispatcher: EffectDispatcher,
    address: String,
) {
    loop {
        sleep(LEASE_DURATION / 3).await;
        match store.lead(&options.instance, LEASE_DURATION, Some(epoch), &address).await {
            Ok(Some(_)) => dispatcher.store_outage.set_lease_failure(None),
            Ok(None) => {
                let _ = dispatcher.queue.send(Message::Deposed);
                return;
            }
            // While Redis is away nobody can commit, nobody else can take the lead, and the loop waits.
            Err(error) => dispatcher.store_outage.set_lease_failure(Some(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_where_an_engine_decides_leaves_nobody_active_and_says_why() {
        let (queue, _inbox) = mpsc::unbounded_channel();
        let shards = ShardDirectory::new(1, "0123456789abcdef".repeat(4).parse().unwrap());
        let dispatcher =
            EffectDispatcher::new(EngineEpoch(1), Sessions::default(), shards, queue, Clock::start());
        let (activate, active) = watch::channel(Ok(dispatcher));
        let (tell, panicked) = watch::channel(None);
        let (address, tasks) = (([127, 0, 0, 1], 0).into(), Vec::new());
        let mut engine = EngineHandle { address, tasks, active: active.clone(), panicked };
        report_panic(async { panic!("a task without its node") }, &activate, &tell).await;
        assert_eq!(engine.panicked().await, "a task without its node");
        assert!(active.borrow().is_err());
    }
}
