//! Starting everything in order, until every worker is registered.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::{IpAddr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::sleep};

use syncline_engine::{
    rpc::{EngineAddresses, Token},
    service::EngineError,
};
use syncline_kit::Device;
use syncline_workers::{
    client::{Client, Cluster, FindError, RunningCluster},
    worker::machine_memory_bytes,
};

use super::{
    args::{Plan, default_listen},
    child::{Event, HowEnded, Program, STOP_TIMEOUT},
    children::{ChildKind, Children},
    native::Native,
    state_dir::{SavedAddresses, ShardProcess, StateDir},
};
use crate::cli::{CliError, Failure};

/// Everything must be there within this time.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// A shard writes down the jobs that it holds before it ends; large ones on a slow disk take a while.
const SAVE_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The children of an earlier `up` that was killed need a moment until their ports are free.
const PORT_FREE_TIMEOUT: Duration = Duration::from_secs(3);
/// Names of the engines. Which of them leads is between them.
const FIRST_ENGINE: &str = "engine";
const SECOND_ENGINE: &str = "engine-b";
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
    let leader = progress.wait_until_ready(&cluster, plan, shards, events, deadline).await?;
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
            self.next(events, deadline, "the engine does not listen").await?;
        }
    }

    /// Returns when all shards and workers are registered and every event has been recorded: the address of who leads.
    async fn wait_until_ready(
        &mut self,
        cluster: &Cluster,
        plan: &Plan,
        shards: u32,
        events: &mut Events,
        deadline: Instant,
    ) -> Result<String, CliError> {
        let leader = loop {
            let missing = match leader_when_ready(cluster, plan, shards, self).await {
                Ok(leader) => break leader,
                Err(missing) => missing,
            };
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                event = self.next(events, deadline, &missing) => event?,
            }
        };
        while let Ok(event) = events.try_recv() {
            self.record(event)?;
        }
        Ok(leader)
    }

    /// Waits for something to happen.
    async fn next(&mut self, events: &mut Events, deadline: Instant, missing: &str) -> Result<(), CliError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, events.recv()).await {
            Ok(Some(event)) => self.record(event),
            _ => Err(CliError::NotReady { after_s: READY_TIMEOUT.as_secs(), missing: missing.to_owned() }),
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

/// The address of the engine that leads, when everything is there; else what is still missing, in words.
async fn leader_when_ready(
    cluster: &Cluster,
    plan: &Plan,
    shards: u32,
    progress: &Progress,
) -> Result<String, String> {
    let (_, about) = Client::connect(cluster).await.map_err(|_| "the engine does not answer")?;
    if let Some(idle) = about.idle {
        return Err(format!("the engine is not active: {idle}"));
    }
    let present = about.shards_present;
    if present < shards {
        return Err(format!("{present} of {shards} shards are there"));
    }
    let slots_of = |pid: u32| about.worker_pids.iter().filter(|registered| **registered == pid).count();
    let ours = progress.pids.iter().filter(|(name, _)| name.starts_with("worker-"));
    let there = ours.filter(|(_, pid)| slots_of(**pid) >= plan.trainings as usize).count();
    match there == plan.slowdowns.len() {
        true => Ok(about.address),
        false => Err(format!("{there} of {} workers are registered", plan.slowdowns.len())),
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

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// The address where a process listened before, if it is one of `ip` and free; else any port there.
fn again_or_any(before: Option<SocketAddr>, ip: IpAddr) -> SocketAddr {
    before.filter(|address| address.ip() == ip && is_free(*address)).unwrap_or(SocketAddr::new(ip, 0))
}

/// Makes the command line of each kind of child.
struct ChildPrograms<'a> {
    plan: &'a Plan,
    state_dir: &'a StateDir,
    shards: u32,
    replicas: u32,
    token_file: &'a Path,
    bin: &'a Path,
}

impl ChildPrograms<'_> {
    fn program(&self, name: String, bin: &Path, args: Vec<OsString>) -> Program {
        let log = self.state_dir.log_file(&name);
        Program {
            name,
            bin: bin.to_owned(),
            args,
            env: Vec::new(),
            log,
            listen: None,
            stop_timeout: STOP_TIMEOUT,
            longest_pause: self.plan.longest_pause,
            saves_state: false,
        }
    }

    fn args(&self, command: &str, rest: &[(&str, String)]) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![command.into(), "--token-file".into(), self.token_file.into()];
        args.extend(rest.iter().flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)]));
        args
    }

    fn engine(&self, native: &Native, saved: &SavedAddresses, listen: SocketAddr) -> Program {
        self.engine_named(FIRST_ENGINE, &saved.instance, native, listen)
    }

    /// Where it listened before, if that is free.
    fn second_engine(&self, native: &Native, saved: &SavedAddresses, first: SocketAddr) -> Program {
        let listen = again_or_any(saved.second_engine, first.ip());
        self.engine_named(SECOND_ENGINE, &format!("{}-b", saved.instance), native, listen)
    }

    fn engine_named(&self, name: &str, instance: &str, native: &Native, listen: SocketAddr) -> Program {
        let args = [("--instance", instance.to_owned()), ("--shards", self.shards.to_string())];
        let mut program = self.program(name.to_owned(), self.bin, self.args("engine", &args));
        // Not as an argument: everybody on this machine can read those, and the address may hold a password.
        program.env.push(("SYNCLINE_REDIS", native.redis_url.clone().into()));
        program.listen = Some(listen);
        program
    }

    fn shard(
        &self,
        saved: &SavedAddresses,
        engines: &EngineAddresses,
        ip: IpAddr,
        shard: ShardProcess,
    ) -> Program {
        let (name, index) = (format!("ps-{shard}"), shard.index);
        let before = saved.shards.get(&name).copied();
        let position = format!("{index}/{}", self.shards);
        let replicas = self.replicas.to_string();
        let named = [("--engine", engines.to_string()), ("--shard", position), ("--replicas", replicas)];
        let mut args = self.args("ps", &named);
        args.extend(["--state-dir".into(), self.state_dir.shard_dir(shard).into()]);
        let mut program = self.program(name, self.bin, args);
        program.listen = Some(again_or_any(before, ip));
        program.stop_timeout = SAVE_TIMEOUT;
        program.saves_state = true;
        program
    }

    fn worker(
        &self,
        native: &Native,
        engines: &EngineAddresses,
        index: usize,
        slowdown: f64,
        device: Device,
    ) -> Program {
        let (name, plan) = (format!("worker-{index}"), self.plan);
        // They share the machine.
        let memory_bytes = machine_memory_bytes() / plan.slowdowns.len().max(1) as u64;
        let mut args = self.args(
            "worker",
            &[
                ("--engine", engines.to_string()),
                ("--name", name.clone()),
                ("--device", device.to_string()),
                ("--slowdown", slowdown.to_string()),
                ("--step-ms", plan.step_ms.to_string()),
                ("--trainings", plan.trainings.to_string()),
                ("--transport", plan.transport.to_string()),
            ],
        );
        // Where nobody can say what there is, none is offered.
        if memory_bytes > 0 {
            args.extend(["--memory".into(), format!("{memory_bytes}B").into()]);
        }
        let bin: PathBuf = plan.worker_bin.clone().unwrap_or_else(|| self.bin.to_owned());
        let mut program = self.program(name, &bin, args);
        program.env.push(("ORT_DYLIB_PATH", native.onnxruntime.clone().into()));
        program
    }
}
