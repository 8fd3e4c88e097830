//! Starting everything in order, until every worker is registered.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::sleep};

use syncline_engine::service::EngineError;
use syncline_rpc::{EngineAddresses, Token, status::EngineStatus};
use syncline_workers::client::{Cluster, FindError, RunningCluster};

use super::{
    args::{Plan, default_listen},
    child::{self, Event, HowEnded},
    children::{ChildKind, Children},
    native::Native,
    programs::{ChildPrograms, is_free},
    state_dir::{SavedAddresses, ShardProcess, StateDir},
};
use crate::cli::{CliError, Failure, ask_each, say};

/// Everything must be there within this time.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Who waits longer is told for what.
const SILENCE: Duration = Duration::from_secs(10);
/// A shard writes down the jobs that it holds before it ends; large ones on a slow disk take a while.
pub(super) const SAVE_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The children of an earlier `up` that was killed need a moment until their ports are free.
const PORT_FREE_TIMEOUT: Duration = Duration::from_secs(3);
/// Names of the engines. Which of them leads is between them.
pub(super) const FIRST_ENGINE: &str = "engine";
pub(super) const SECOND_ENGINE: &str = "engine-b";
/// A child that ends so often before everything is ready will not come up.
const MAX_ENDS_BEFORE_READY: u32 = 3;

type Events = mpsc::UnboundedReceiver<Event>;

/// What the children have reported so far.
#[derive(Default)]
struct Progress {
    pids: BTreeMap<String, u32>,
    addresses: BTreeMap<String, SocketAddr>,
    ends: BTreeMap<String, u32>,
}

/// What is not there yet.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    what: String,
    /// The process whose log says why.
    process: String,
}

impl Missing {
    fn new(process: impl Into<String>, what: impl Into<String>) -> Self {
        Self { what: what.into(), process: process.into() }
    }

    /// In words, with the last that its process has logged.
    fn describe(&self, state_dir: &StateDir) -> String {
        let Self { what, process } = self;
        match child::last_line(&state_dir.log_file(process)) {
            Some(line) => format!("{what}; the log of {process} ends with: {line}"),
            None => what.clone(),
        }
    }
}

/// A cluster that is ready.
pub(crate) struct Started {
    pub running: RunningCluster,
    /// Address of the engine that leads now.
    pub leader: String,
    /// Its name among the processes.
    pub leader_name: String,
}

/// Starts engine, shards and workers, and waits until all are registered.
pub(crate) async fn start(
    plan: &Plan,
    shards: u32,
    state_dir: &StateDir,
    native: &Native,
    children: &mut Children,
    events: &mut Events,
) -> Result<Started, Failure> {
    let mut saved = state_dir.saved_addresses()?;
    let (token_file, token) = token(plan, state_dir)?;
    let listen = engine_address(plan, &saved).await?;
    let engine_count = plan.engines.unwrap_or(1 + u32::from(saved.second_engine.is_some()));
    let bin =
        std::env::current_exe().map_err(|source| CliError::Path { path: "this program".into(), source })?;
    let replicas = state_dir.replica_count(plan.replicas, shards)?;
    let programs = ChildPrograms { plan, state_dir, shards, replicas, token_file: &token_file, bin: &bin };
    let deadline = Instant::now() + READY_TIMEOUT;
    let mut progress = Progress::default();

    let (first, second) =
        (programs.engine(native, &saved, listen), programs.second_engine(native, &saved, listen));
    children.start(ChildKind::Engine, first);
    let engine = progress.wait_for_engine(FIRST_ENGINE, events, deadline).await?;
    saved.engine = Some(engine);
    saved.second_engine = None;
    if engine_count > 1 {
        children.start(ChildKind::Engine, second);
        saved.second_engine = Some(progress.wait_for_engine(SECOND_ENGINE, events, deadline).await?);
    }
    let engines = saved.second_engine.into_iter().fold(EngineAddresses::from(engine), EngineAddresses::and);
    for shard in ShardProcess::all(shards, replicas) {
        children.start(ChildKind::Shard, programs.shard(&saved, &engines, listen.ip(), shard));
    }
    for (index, (slowdown, device)) in plan.slowdowns.iter().zip(&plan.devices).enumerate() {
        children.start(ChildKind::Worker, programs.worker(native, &engines, index, *slowdown, *device));
    }
    let cluster = Cluster { engines, token };
    let leader = progress.wait_until_ready(&cluster, plan, shards, state_dir, events, deadline).await?;
    let of_shards = progress.addresses.iter().filter(|(name, _)| name.starts_with("ps-"));
    saved.shards = of_shards.map(|(name, address)| (name.clone(), *address)).collect();
    state_dir.save_addresses(&saved)?;
    let running = RunningCluster {
        pid: std::process::id(),
        engine,
        second_engine: saved.second_engine,
        token_file: std::path::absolute(&token_file).unwrap_or(token_file),
        redis: native.redis.clone(),
        redis_password_file: native.redis_password_file.clone(),
        state_dir: state_dir.dir().to_owned(),
        shards,
        replicas,
        workers: plan.slowdowns.len() as u32,
        processes: progress.pids,
    };
    let leader_name = if leader == engine.to_string() { FIRST_ENGINE } else { SECOND_ENGINE }.to_owned();
    Ok(Started { running, leader, leader_name })
}

/// The token file, named or in the state directory, and its token; the latter file is created if it is missing.
fn token(plan: &Plan, state_dir: &StateDir) -> Result<(PathBuf, Token), CliError> {
    let (path, token) = match &plan.token_file {
        Some(named) => (named.clone(), Token::load(named)),
        None => {
            let path = state_dir.token_file();
            let token = Token::load_or_create(&path);
            (path, token)
        }
    };
    match token {
        Ok(token) => Ok((path, token)),
        Err(source) => Err(FindError::TokenFile { path, source }.into()),
    }
}

impl Progress {
    /// The address of the engine of this name, as soon as it listens.
    async fn wait_for_engine(
        &mut self,
        name: &str,
        events: &mut Events,
        deadline: Instant,
    ) -> Result<SocketAddr, CliError> {
        loop {
            if let Some(address) = self.addresses.get(name) {
                return Ok(*address);
            }
            self.next(events, deadline, || format!("{name} does not listen")).await?;
        }
    }

    /// Returns when all shards and workers are registered and every event has been recorded: the address of who leads.
    async fn wait_until_ready(
        &mut self,
        cluster: &Cluster,
        plan: &Plan,
        shards: u32,
        state_dir: &StateDir,
        events: &mut Events,
        deadline: Instant,
    ) -> Result<String, CliError> {
        let mut said_at = Instant::now();
        let leader = loop {
            let missing = match leader_when_ready(cluster, plan, shards, self).await {
                Ok(leader) => break leader,
                Err(missing) => missing,
            };
            if said_at.elapsed() > SILENCE {
                said_at = Instant::now();
                say(&format!("still waiting: {}", missing.describe(state_dir)));
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                event = self.next(events, deadline, || missing.describe(state_dir)) => event?,
            }
        };
        while let Ok(event) = events.try_recv() {
            self.record(event)?;
        }
        Ok(leader)
    }

    /// Waits for something to happen.
    async fn next(
        &mut self,
        events: &mut Events,
        deadline: Instant,
        missing: impl Fn() -> String,
    ) -> Result<(), CliError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, events.recv()).await {
            Ok(Some(event)) => self.record(event),
            _ => Err(CliError::NotReady { after_s: READY_TIMEOUT.as_secs(), missing: missing() }),
        }
    }

    fn record(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            Event::Started { name, pid } => {
                self.pids.insert(name, pid);
            }
            Event::Listening { name, address } => {
                self.addresses.insert(name, address);
            }
            Event::Leading { .. } => {}
            Event::Ended { name, how: HowEnded { status, exit, log, tail }, .. } => {
                let ends = self.ends.entry(name.clone()).or_default();
                *ends += 1;
                if *ends >= MAX_ENDS_BEFORE_READY {
                    return Err(CliError::ChildEnded { name, status, log, tail, exit });
                }
            }
        }
        Ok(())
    }
}

/// The address of the engine that leads, when everything is there; else what is still missing.
async fn leader_when_ready(
    cluster: &Cluster,
    plan: &Plan,
    shards: u32,
    progress: &Progress,
) -> Result<String, Missing> {
    let about = who_leads(cluster).await?;
    let present = about.shards_present;
    if present < shards {
        return Err(Missing::new(FIRST_ENGINE, format!("{present} of {shards} shards are there")));
    }
    let slots_of = |pid: u32| about.worker_pids.iter().filter(|registered| **registered == pid).count();
    let ours = progress.pids.iter().filter(|(name, _)| name.starts_with("worker-"));
    let (there, not_there): (Vec<_>, Vec<_>) =
        ours.partition(|(_, pid)| slots_of(**pid) >= plan.trainings as usize);
    if there.len() == plan.slowdowns.len() {
        return Ok(about.address);
    }
    let process = not_there.first().map_or("worker-0", |(name, _)| name.as_str());
    let what = format!("{} of {} workers are registered", there.len(), plan.slowdowns.len());
    Err(Missing::new(process, what))
}

/// What the engine says of itself that leads: either may, as before the start the other one did.
async fn who_leads(cluster: &Cluster) -> Result<EngineStatus, Missing> {
    let mut missing = None;
    for answer in ask_each(cluster).await {
        let what = match answer {
            Ok((_, EngineStatus { idle: Some(idle), leader, .. })) => {
                format!("the engine is not active: {idle}{}", foreign(leader.as_deref(), cluster))
            }
            Ok((_, about)) => return Ok(about),
            Err(_) => "the engine does not answer".to_owned(),
        };
        missing.get_or_insert(what);
    }
    Err(Missing::new(FIRST_ENGINE, missing.unwrap_or_default()))
}

/// What to do where an engine leads that is none of this cluster; empty if it is one.
fn foreign(leader: Option<&str>, cluster: &Cluster) -> &'static str {
    let is_ours = |leader: &str| cluster.engines.each().any(|engine| engine.to_string() == leader);
    match leader.is_none_or(is_ours) {
        true => "",
        false => {
            "; that is another cluster on the same Redis database: give this one a database of its own, as in redis://HOST:6379/1"
        }
    }
}

/// Where the engine listens: the given address, the saved one, or the default.
async fn engine_address(plan: &Plan, saved: &SavedAddresses) -> Result<SocketAddr, Failure> {
    let address = match (plan.listen, saved.engine) {
        (Some(told), Some(before)) if told.port() == 0 && told.ip() == before.ip() && is_free(before) => {
            before
        }
        (Some(told), _) => told,
        (None, Some(before)) => before,
        (None, None) => default_listen()?,
    };
    let since = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(_) if since.elapsed() < PORT_FREE_TIMEOUT => sleep(POLL_INTERVAL).await,
            Err(source) => return Err(EngineError::Listen { address, source }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::Token;

    use super::*;

    #[test]
    fn an_engine_of_another_cluster_that_leads_is_told_with_what_to_do() {
        let cluster =
            Cluster { engines: "127.0.0.1:1,127.0.0.1:2".parse().unwrap(), token: Token::generate() };
        for (leader, is_told) in [(None, false), (Some("127.0.0.1:2"), false), (Some("127.0.0.1:3"), true)] {
            assert_eq!(foreign(leader, &cluster).contains("a database of its own"), is_told, "{leader:?}");
        }
    }
}
