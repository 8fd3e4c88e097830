//! Starting everything in order, until every worker is registered.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::sleep};

use super::{
    args::{Plan, default_listen},
    crew::{Crew, Rank},
    house::{House, Kept, Running},
    native::Native,
    program::{Event, HowEnded, Program, STOP_LIMIT},
};
use crate::{
    cli::{CliError, Cluster, Failure},
    rpc::Token,
    service::EngineError,
};
use syncline_kit::Device;

/// Everything must be there within this time.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A shard writes down the jobs that it holds before it ends; large ones on a slow disk take a while.
const SAVING_LIMIT: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The children of a predecessor that was killed need a moment to let their ports go.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(3);
/// A child that ends so often before everything is ready will not come up.
const ENDS_BEFORE_READY: u32 = 3;

type Events = mpsc::UnboundedReceiver<Event>;

/// What is known of the children so far.
#[derive(Default)]
struct Seen {
    pids: BTreeMap<String, u32>,
    addresses: BTreeMap<String, SocketAddr>,
    ends: BTreeMap<String, u32>,
}

/// Starts engine, shards and workers, and waits until all are registered.
pub(super) async fn start(
    plan: &Plan,
    shards: u32,
    house: &House,
    native: &Native,
    crew: &mut Crew,
    events: &mut Events,
) -> Result<Running, Failure> {
    let mut kept = house.kept();
    let token_file = match &plan.token_file {
        Some(named) => named.clone(),
        None => house.token_file(),
    };
    let token = match &plan.token_file {
        Some(named) => Token::load(named),
        None => Token::load_or_create(&token_file),
    };
    let token = token.map_err(|source| CliError::TokenFile { path: token_file.clone(), source })?;
    let listen = engine_address(plan, &kept).await?;
    let bin =
        std::env::current_exe().map_err(|source| CliError::Place { path: "this program".into(), source })?;
    let hire = Hire { house, shards, token_file: &token_file, bin: &bin };
    let deadline = Instant::now() + READY_LIMIT;
    let mut seen = Seen::default();

    crew.start(Rank::Engine, hire.engine(native, &kept, listen));
    let engine = loop {
        if let Some(address) = seen.addresses.get("engine") {
            break *address;
        }
        seen.next(events, deadline, "the engine does not listen").await?;
    };
    kept.engine = Some(engine);
    for index in 0..shards {
        crew.start(Rank::Shard, hire.shard(&kept, engine, index));
    }
    for (index, (slowdown, device)) in plan.slowdowns.iter().zip(&plan.devices).enumerate() {
        crew.start(Rank::Worker, hire.worker(plan, native, engine, index, *slowdown, *device));
    }
    let cluster = Cluster { engines: engine.into(), token };
    loop {
        let missing = missing(&cluster, plan, shards, &seen).await;
        if missing.is_empty() {
            break;
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            event = seen.next(events, deadline, &missing) => event?,
        }
    }
    while let Ok(event) = events.try_recv() {
        seen.note(event)?;
    }
    let of_shards = seen.addresses.iter().filter(|(name, _)| name.starts_with("ps-"));
    kept.shards = of_shards.map(|(name, address)| (name.clone(), *address)).collect();
    house.keep(&kept)?;
    Ok(Running {
        pid: std::process::id(),
        engine,
        token_file: std::path::absolute(&token_file).unwrap_or(token_file),
        redis: native.redis.clone(),
        redis_password_file: native.redis_password_file.clone(),
        state_dir: house.dir().to_owned(),
        shards,
        workers: plan.slowdowns.len() as u32,
        processes: seen.pids,
    })
}

impl Seen {
    /// Waits for something to happen.
    async fn next(&mut self, events: &mut Events, deadline: Instant, missing: &str) -> Result<(), CliError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, events.recv()).await {
            Ok(Some(event)) => self.note(event),
            _ => Err(CliError::NotReady { after_s: READY_LIMIT.as_secs(), missing: missing.to_owned() }),
        }
    }

    fn note(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            Event::Started { name, pid } => {
                self.pids.insert(name, pid);
            }
            Event::Listening { name, address } => {
                self.addresses.insert(name, address);
            }
            Event::Ended { name, how: HowEnded { status, exit, log, tail }, .. } => {
                let ends = self.ends.entry(name.clone()).or_default();
                *ends += 1;
                if *ends >= ENDS_BEFORE_READY {
                    return Err(CliError::ChildEnded { name, status, log, tail, exit });
                }
            }
        }
        Ok(())
    }
}

/// What is not there yet, in words; empty when everything is.
async fn missing(cluster: &Cluster, plan: &Plan, shards: u32, seen: &Seen) -> String {
    let Ok((_, about)) = cluster.meet().await else { return "the engine does not answer".into() };
    if !about.get("idle").is_empty() {
        return format!("the engine is not active: {}", about.get("idle"));
    }
    let present = about.number("shards_present");
    if present < shards {
        return format!("{present} of {shards} shards are there");
    }
    let registered: BTreeSet<&str> = about.get("worker_pids").split(' ').collect();
    let ours = seen.pids.iter().filter(|(name, _)| name.starts_with("worker-"));
    let there = ours.filter(|(_, pid)| registered.contains(pid.to_string().as_str())).count();
    match there == plan.slowdowns.len() {
        true => String::new(),
        false => format!("{there} of {} workers are registered", plan.slowdowns.len()),
    }
}

/// Where the engine listens: as told, as before, or at the default address.
async fn engine_address(plan: &Plan, kept: &Kept) -> Result<SocketAddr, Failure> {
    let address = match (plan.listen, kept.engine) {
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
            Err(_) if since.elapsed() < PREDECESSOR_LIMIT => sleep(LOOK_EVERY).await,
            Err(source) => return Err(EngineError::Listen { address, source }.into()),
        }
    }
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// How each kind of child is started.
struct Hire<'a> {
    house: &'a House,
    shards: u32,
    token_file: &'a Path,
    bin: &'a Path,
}

impl Hire<'_> {
    fn program(&self, name: String, bin: &Path, args: Vec<OsString>) -> Program {
        let log = self.house.log(&name);
        Program {
            name,
            bin: bin.to_owned(),
            args,
            env: Vec::new(),
            log,
            listen: None,
            stop_limit: STOP_LIMIT,
            keeps: false,
        }
    }

    fn args(&self, command: &str, rest: &[(&str, String)]) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![command.into(), "--token-file".into(), self.token_file.into()];
        args.extend(rest.iter().flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)]));
        args
    }

    fn engine(&self, native: &Native, kept: &Kept, listen: SocketAddr) -> Program {
        let args = [("--instance", kept.instance.clone()), ("--shards", self.shards.to_string())];
        let mut program = self.program("engine".into(), self.bin, self.args("engine", &args));
        // Not as an argument: everybody on this machine can read those, and the address may hold a password.
        program.env.push(("SYNCLINE_REDIS", native.redis_url.clone().into()));
        program.listen = Some(listen);
        program
    }

    fn shard(&self, kept: &Kept, engine: SocketAddr, index: u32) -> Program {
        let name = format!("ps-{index}");
        let before = kept.shards.get(&name).copied().filter(|a| a.ip() == engine.ip() && is_free(*a));
        let place = format!("{index}/{}", self.shards);
        let mut args = self.args("ps", &[("--engine", engine.to_string()), ("--shard", place)]);
        args.extend(["--state-dir".into(), self.house.shard(index).into()]);
        let mut program = self.program(name, self.bin, args);
        program.listen = Some(before.unwrap_or(SocketAddr::new(engine.ip(), 0)));
        program.stop_limit = SAVING_LIMIT;
        program.keeps = true;
        program
    }

    fn worker(
        &self,
        plan: &Plan,
        native: &Native,
        engine: SocketAddr,
        index: usize,
        slowdown: f64,
        device: Device,
    ) -> Program {
        let name = format!("worker-{index}");
        let args = self.args(
            "worker",
            &[
                ("--engine", engine.to_string()),
                ("--name", name.clone()),
                ("--device", device.to_string()),
                ("--slowdown", slowdown.to_string()),
                ("--step-ms", plan.step_ms.to_string()),
            ],
        );
        let bin: PathBuf = plan.worker_bin.clone().unwrap_or_else(|| self.bin.to_owned());
        let mut program = self.program(name, &bin, args);
        program.env.push(("ORT_DYLIB_PATH", native.onnxruntime.clone().into()));
        program
    }
}
