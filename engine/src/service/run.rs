//! Starts an engine, serves its connections, and stops it.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use syncline_rpc::{
    ClientService, Guarded, InactiveReason, ShardRegistry, WorkerService, accept_noting, answer_calls,
    channel, describe, hello::Role, threads::lock,
};
use tarpc::server::Channel;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};
use tracing::error;

use super::{
    client_handler::ClientHandler,
    context::ServiceContext,
    lead::Lead,
    leadership::Leadership,
    liveness::{drop_worker, monitor_liveness},
    options::EngineOptions,
    shard_handler::ShardHandler,
    shards::ShardDirectory,
    worker_handler::WorkerHandler,
};
use crate::store::{RedisRisk, RedisStore, StoreError};

/// A worker whose connection closed may come back within this time.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

/// One that was told that Redis cannot be written to asks the other engines first, of which one may not even
/// refuse to be connected to. Whether such a worker is gone shows by its silence.
const OUTAGE_GRACE: Duration = Duration::from_secs(10);

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The address is taken, or is none of this machine.
    #[error("[E240] cannot listen on {address}")]
    Listen {
        /// Address that was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Redis has no such address, does not answer, or does not let the engine in.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "E240",
            Self::Store(source) => source.code(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Listen { address, source } if source.kind() == io::ErrorKind::AddrNotAvailable => {
                Some(format!(
                    "{} is no address of this machine, or no longer: `ip addr` shows those that it has; name one with --listen",
                    address.ip()
                ))
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Some(
                "another program listens there: name another address with --listen; port 0 takes a free one"
                    .to_owned(),
            ),
            Self::Listen { .. } => {
                Some("name another address with --listen; port 0 takes a free one".to_owned())
            }
            Self::Store(source) => source.hint(),
        }
    }
}

/// Tells each time that an engine takes the lead.
#[derive(Clone)]
pub struct LeadWatch {
    active: watch::Receiver<Result<Lead, InactiveReason>>,
    leads: bool,
}

impl LeadWatch {
    /// Waits until the engine takes the lead, after it has lost the one that was told of last; forever, once
    /// it has stopped.
    pub async fn taken(&mut self) {
        while self.active.wait_for(|active| active.is_ok() != self.leads).await.is_ok() {
            self.leads = !self.leads;
            if self.leads {
                return;
            }
        }
        std::future::pending().await
    }
}

/// Holds an engine; dropping it stops the engine at once, as a crash would.
pub struct EngineHandle {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
    activate: watch::Sender<Result<Lead, InactiveReason>>,
    active: watch::Receiver<Result<Lead, InactiveReason>>,
    panicked: watch::Receiver<Option<String>>,
    risks: Vec<RedisRisk>,
}

impl EngineHandle {
    /// Where the engine listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the Redis server was set up at the start so that it may lose jobs.
    pub fn redis_risks(&self) -> &[RedisRisk] {
        &self.risks
    }

    /// Waits until this engine is the active one.
    pub async fn active(&mut self) {
        // The sender lives as long as this handle.
        let _ = self.active.wait_for(Result::is_ok).await;
    }

    /// Tells when this engine takes the lead: the first time, too, unless somebody has waited for that here.
    pub fn lead_watch(&self) -> LeadWatch {
        LeadWatch { active: self.active.clone(), leads: false }
    }

    /// Waits until this engine has a bug, and says which: it decides nothing any more and should end as a
    /// process, so that a standby or its supervisor takes over.
    pub async fn panicked(&mut self) -> String {
        self.bug_watch().found().await
    }

    /// Tells the same on another thread: the one that decides may hang.
    pub fn bug_watch(&self) -> BugWatch {
        BugWatch(self.panicked.clone())
    }
}

/// Tells that an engine has a bug.
pub struct BugWatch(watch::Receiver<Option<String>>);

impl BugWatch {
    /// Waits until it has, and says which; forever, once the engine has stopped without.
    pub async fn found(&mut self) -> String {
        match self.0.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        // Calls that have begun end by it.
        if let Ok(lead) = self.activate.send_replace(Err(InactiveReason::Changing)) {
            lead.stop();
        }
    }
}

/// Starts an engine: listens and connects to Redis; both fail at once. Must be called inside a tokio runtime.
pub async fn start(options: EngineOptions) -> Result<EngineHandle, EngineError> {
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|source| EngineError::Listen { address: options.listen, source })?;
    let address =
        listener.local_addr().map_err(|source| EngineError::Listen { address: options.listen, source })?;
    let store = RedisStore::connect(options.redis.clone()).await?;
    let risks = store.risks().await;
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
    let of_foreign_shard = {
        let shards = shards.clone();
        move || shards.note_foreign()
    };
    const SERVED: &[Role] = &[Role::Client, Role::Worker, Role::Shard];
    let tasks = vec![
        tokio::spawn(accept_noting(listener, options.token.clone(), SERVED, serve, of_foreign_shard)),
        tokio::spawn(monitor_liveness(context)),
        tokio::spawn({
            let activate = activate.clone();
            async move {
                let leading =
                    Leadership::new(options, store, shards, activate.clone(), tell.clone(), address).run();
                report_panic(leading, &activate, &tell).await;
            }
        }),
    ];
    Ok(EngineHandle { address, tasks, activate, active, panicked, risks })
}

/// Runs `leading` to its end; a panic makes the engine inactive and is reported to the holder of the handle.
async fn report_panic(
    leading: impl Future<Output = ()>,
    activate: &watch::Sender<Result<Lead, InactiveReason>>,
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
        ("redis", options.redis.to_string()),
        ("shards", options.shards.to_string()),
        ("instance", options.instance.clone()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into()
}

async fn serve(context: ServiceContext, role: Role, stream: TcpStream) {
    match role {
        Role::Client => {
            answer_calls(channel(stream).execute(Guarded(ClientHandler { context }.serve()))).await
        }
        Role::Shard => answer_calls(channel(stream).execute(Guarded(ShardHandler { context }.serve()))).await,
        Role::Worker => {
            let last_worker = Arc::default();
            let connection = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
            let worker =
                WorkerHandler { context: context.clone(), connection, last_worker: Arc::clone(&last_worker) };
            answer_calls(channel(stream).execute(Guarded(worker.serve()))).await;
            let last_worker: &Mutex<_> = &last_worker;
            let Some(worker) = *lock(last_worker) else { return };
            sleep(CLOSED_GRACE).await;
            let Ok(lead) = context.lead() else { return };
            let outage = &lead.store_outage;
            if outage.lead_expired() || outage.may_have_sent_away(OUTAGE_GRACE) {
                return;
            }
            if lead.sessions.connection(worker) == Some(connection) {
                drop_worker(&context, worker, "its connection closed");
            }
        }
        Role::Control | Role::Tensor => {}
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::EngineEpoch;

    use super::*;
    use crate::service::{clock::Clock, queue::decision_queue, sessions::Sessions};

    #[test]
    fn an_address_of_another_machine_is_told_from_one_that_is_taken() {
        let hint = |kind: io::ErrorKind| {
            let address = ([192, 0, 2, 1], 7461).into();
            EngineError::Listen { address, source: kind.into() }.hint().unwrap()
        };
        assert!(hint(io::ErrorKind::AddrNotAvailable).starts_with("192.0.2.1 is no address of this machine"));
        assert!(hint(io::ErrorKind::AddrInUse).starts_with("another program listens there"));
        // A port below 1024, of who may not have it.
        assert!(hint(io::ErrorKind::PermissionDenied).starts_with("name another address"));
    }

    #[tokio::test]
    async fn a_panic_where_an_engine_decides_leaves_nobody_active_and_says_why() {
        let (queue, _inbox) = decision_queue();
        let shards = ShardDirectory::new(1, "0123456789abcdef".repeat(4).parse().unwrap());
        let lead = Lead::new(EngineEpoch(1), Sessions::default(), shards, queue, Clock::start());
        let (activate, active) = watch::channel(Ok(lead));
        let (tell, panicked) = watch::channel(None);
        let (address, tasks) = (([127, 0, 0, 1], 0).into(), Vec::new());
        let mut engine = EngineHandle {
            address,
            tasks,
            activate: activate.clone(),
            active: active.clone(),
            panicked,
            risks: Vec::new(),
        };
        report_panic(async { panic!("a task without its node") }, &activate, &tell).await;
        assert_eq!(engine.panicked().await, "a task without its node");
        assert!(active.borrow().is_err());
    }
}
