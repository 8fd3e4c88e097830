//! Starting everything in order, until every worker is registered.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
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
use crate::cli::{CliError, Failure, ask_each, check_open_bind, say};

/// Everything must be there within this time, beside what [`SAVE_TIMEOUT`] is for.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Who waits longer is told for what.
const SILENCE: Duration = Duration::from_secs(10);
/// A shard writes down the jobs that it holds before it ends, and reads them at the next start; large ones on a slow disk take
/// a while.
pub(super) const SAVE_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The children of an earlier `up` that was killed need a moment until their ports are free.
const PORT_FREE_TIMEOUT: Duration = Duration::from_secs(3);
/// Names of the engines. Which of them leads is between them.
pub(super) const FIRST_ENGINE: &str = "engine";
pub(super) const SECOND_ENGINE: &str = "engine-b";
/// A child that ends so often before everything is ready will not come up.
const MAX_ENDS_BEFORE_READY: u32 = 3;

/// In the log of a shard whose folder another process still has.
const STATE_DIR_IN_USE: &str = "[E421]";

type Events = mpsc::UnboundedReceiver<Event>;

/// What the children have reported so far.
struct Progress {
    pids: BTreeMap<String, u32>,
    addresses: BTreeMap<String, SocketAddr>,
    ends: BTreeMap<String, u32>,
    patience: Patience,
}

/// How long the start may take.
struct Patience {
    began: Instant,
    deadline: Instant,
    /// Shard processes that read saved jobs before they listen, or whose predecessor still saves them.
    busy: BTreeSet<String>,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self { began: now, deadline: now + READY_TIMEOUT, busy: BTreeSet::new() }
    }

    /// This process reads or waits for saved jobs.
    fn note_busy(&mut self, name: impl Into<String>) {
        self.busy.insert(name.into());
        self.deadline = self.began + SAVE_TIMEOUT;
    }

    /// This process listens. When all do that had jobs to read, the others have the usual time from now on.
    fn listens(&mut self, name: &str, now: Instant) {
        if self.busy.remove(name) && self.busy.is_empty() {
            self.deadline = now + READY_TIMEOUT;
        }
    }

    /// What else there is to say of what is missing.
    fn note(&self) -> String {
        let busy: Vec<&str> = self.busy.iter().map(String::as_str).collect();
        match busy.is_empty() {
            true => String::new(),
            false => format!(" (jobs of the last stop are not read yet: {})", busy.join(", ")),
        }
    }
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
    let named = named_token_file(plan, &saved);
    let listen = engine_address(plan, &saved).await?;
    check_open_bind(listen, named.as_deref())?;
    let (token_file, token) = token(named.as_deref(), state_dir)?;
    let engine_count = plan.engines.unwrap_or(1 + u32::from(saved.second_engine.is_some()));
    let bin =
        std::env::current_exe().map_err(|source| CliError::Path { path: "this program".into(), source })?;
    let replicas = state_dir.replica_count(plan.replicas, shards)?;
    let programs = ChildPrograms { plan, state_dir, shards, replicas, token_file: &token_file, bin: &bin };
    let mut progress = Progress::new(Instant::now());

    let (first, second) =
        (programs.engine(native, &saved, listen), programs.second_engine(native, &saved, listen));
    children.start(ChildKind::Engine, first);
    let engine = progress.wait_for_engine(FIRST_ENGINE, events).await?;
    saved.engine = Some(engine);
    saved.second_engine = None;
    saved.token_file = named.map(|path| std::path::absolute(&path).unwrap_or(path));
    if engine_count > 1 {
        children.start(ChildKind::Engine, second);
        saved.second_engine = Some(progress.wait_for_engine(SECOND_ENGINE, events).await?);
    }
    let engines = saved.second_engine.into_iter().fold(EngineAddresses::from(engine), EngineAddresses::and);
    for shard in ShardProcess::all(shards, replicas) {
        if state_dir.has_saved_jobs(shard) {
            progress.patience.note_busy(format!("ps-{shard}"));
        }
        children.start(ChildKind::Shard, programs.shard(&saved, &engines, listen.ip(), shard));
    }
    for (index, (slowdown, device)) in plan.slowdowns.iter().zip(&plan.devices).enumerate() {
        children.start(ChildKind::Worker, programs.worker(native, &engines, index, *slowdown, *device));
    }
    let cluster = Cluster { engines, token };
    let leader = progress.wait_until_ready(&cluster, plan, shards, state_dir, events).await?;
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

/// The token file that is named, or that was when the cluster began to listen where it goes on to listen for other machines:
/// they have that token.
fn named_token_file(plan: &Plan, saved: &SavedAddresses) -> Option<PathBuf> {
    let is_open = saved.engine.is_some_and(|address| !address.ip().is_loopback());
    let kept = saved.token_file.as_ref().filter(|_| is_open && plan.listen.is_none());
    plan.token_file.as_ref().or(kept).cloned()
}

/// The token file, named or in the state directory, and its token; the latter file is created if it is missing.
fn token(named: Option<&Path>, state_dir: &StateDir) -> Result<(PathBuf, Token), CliError> {
    let (path, token) = match named {
        Some(named) => (named.to_owned(), Token::load(named)),
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
    fn new(now: Instant) -> Self {
        let (pids, addresses, ends) = Default::default();
        Self { pids, addresses, ends, patience: Patience::new(now) }
    }

    /// The address of the engine of this name, as soon as it listens.
    async fn wait_for_engine(&mut self, name: &str, events: &mut Events) -> Result<SocketAddr, CliError> {
        loop {
            if let Some(address) = self.addresses.get(name) {
                return Ok(*address);
            }
            self.next(events, || format!("{name} does not listen")).await?;
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
    ) -> Result<String, CliError> {
        let mut said_at = Instant::now();
        let leader = loop {
            let missing = match leader_when_ready(cluster, plan, shards, self).await {
                Ok(leader) => break leader,
                Err(missing) => missing,
            };
            if said_at.elapsed() > SILENCE {
                said_at = Instant::now();
                say(&format!("still waiting: {}{}", missing.describe(state_dir), self.patience.note()));
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                event = self.next(events, || missing.describe(state_dir)) => event?,
            }
        };
        while let Ok(event) = events.try_recv() {
            self.record(event)?;
        }
        Ok(leader)
    }

    /// Waits for something to happen.
    async fn next(&mut self, events: &mut Events, missing: impl Fn() -> String) -> Result<(), CliError> {
        let left = self.patience.deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, events.recv()).await {
            Ok(Some(event)) => self.record(event),
            _ => {
                let after_s = self.patience.began.elapsed().as_secs();
                Err(CliError::NotReady { after_s, missing: missing() })
            }
        }
    }

    fn record(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            Event::Started { name, pid } => {
                self.pids.insert(name, pid);
            }
            Event::Listening { name, address } => {
                self.patience.listens(&name, Instant::now());
                self.addresses.insert(name, address);
            }
            Event::Leading { .. } => {}
            // Its predecessor, whose `up` was killed, still saves its jobs: it will be started again.
            Event::Ended { name, how, .. } if how.tail.contains(STATE_DIR_IN_USE) => {
                self.patience.note_busy(name)
            }
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
    fn who_reads_saved_jobs_has_longer_and_what_follows_the_usual_time() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        assert_eq!((patience.deadline, patience.note()), (began + READY_TIMEOUT, String::new()));
        patience.listens("ps-0", began);
        patience.note_busy("ps-0");
        patience.note_busy("ps-1");
        assert_eq!(patience.deadline, began + SAVE_TIMEOUT);
        assert_eq!(patience.note(), " (jobs of the last stop are not read yet: ps-0, ps-1)");
        let later = began + Duration::from_secs(400);
        patience.listens("ps-1", later);
        assert_eq!(patience.deadline, began + SAVE_TIMEOUT);
        patience.listens("ps-0", later);
        assert_eq!(patience.deadline, later + READY_TIMEOUT);
    }

    #[test]
    fn a_shard_whose_predecessor_still_saves_may_end_as_often_as_it_takes() {
        let mut progress = Progress::new(Instant::now());
        let mut end = |tail: &str| {
            let how = HowEnded {
                status: "exit status: 2".into(),
                exit: crate::cli::Exit::Usage,
                log: "log".into(),
                tail: tail.into(),
            };
            progress.record(Event::Ended { name: "ps-0".into(), how, again_in: Duration::ZERO })
        };
        for _ in 0..10 {
            end("error: [E421] the state directory shard-0 is in use by another process").unwrap();
        }
        end("error: [E419] another").unwrap();
        end("error: [E419] another").unwrap();
        assert!(end("error: [E419] another").unwrap_err().to_string().contains("[E504]"));
    }

    #[test]
    fn an_address_that_is_kept_keeps_its_token_file() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            up: super::super::args::UpArgs,
        }
        for (before, line, want) in [
            ("10.0.0.2:1", "", Some("/kept")),
            ("10.0.0.2:1", "--token-file /new", Some("/new")),
            ("10.0.0.2:1", "--listen 127.0.0.1:0", None),
            ("127.0.0.1:1", "", None),
        ] {
            let saved = SavedAddresses {
                engine: Some(before.parse().unwrap()),
                token_file: Some("/kept".into()),
                ..SavedAddresses::default()
            };
            let words = format!("up --state-dir d {line}");
            let plan = Line::try_parse_from(words.split_whitespace()).unwrap().up.plan().unwrap();
            assert_eq!(named_token_file(&plan, &saved), want.map(PathBuf::from), "{before} {line}");
        }
    }

    #[test]
    fn an_engine_of_another_cluster_that_leads_is_told_with_what_to_do() {
        let cluster =
            Cluster { engines: "127.0.0.1:1,127.0.0.1:2".parse().unwrap(), token: Token::generate() };
        for (leader, is_told) in [(None, false), (Some("127.0.0.1:2"), false), (Some("127.0.0.1:3"), true)] {
            assert_eq!(foreign(leader, &cluster).contains("a database of its own"), is_told, "{leader:?}");
        }
    }
}
