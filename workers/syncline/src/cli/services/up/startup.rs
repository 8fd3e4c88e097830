//! Starting everything in order, until every worker is registered.

use std::{
    collections::BTreeSet,
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::sleep};

use syncline_engine::service::EngineError;
use syncline_rpc::{EngineAddresses, Token};
use syncline_workers::client::{Cluster, FindError, RunningCluster};

use super::{
    args::{Plan, default_listen},
    child::Event,
    children::Children,
    native::Native,
    process::{FIRST_ENGINE, Process, SECOND_ENGINE, ShardProcess},
    programs::{ChildPrograms, is_free},
    readiness::{POLL_INTERVAL, Progress},
    saved_redis::SavedRedis,
    state_dir::{SavedAddresses, ShardLayout, StateDir},
};
use crate::cli::{CliError, Failure, check_open_bind, say};

/// The children of an earlier `up` that was killed need a moment until their ports are free.
const PORT_FREE_TIMEOUT: Duration = Duration::from_secs(3);

/// A cluster that is ready.
pub(crate) struct Started {
    pub running: RunningCluster,
    /// Address of the engine that leads now.
    pub leader: String,
    /// Which of the processes it is.
    pub leading: Process,
}

/// Starts engine, shards and workers, and waits until all are registered.
pub(crate) async fn start(
    plan: &Plan,
    shards: u32,
    state_dir: &StateDir,
    native: &Native,
    children: &mut Children,
    events: &mut mpsc::UnboundedReceiver<Event>,
) -> Result<Started, Failure> {
    let mut saved = state_dir.saved_addresses()?;
    let named = named_token_file(plan, &saved);
    let listen = engine_address(plan, &saved).await?;
    check_open_bind(listen, named.as_deref())?;
    let (token_file, token) = token(named.as_deref(), state_dir)?;
    let engine_count = plan.given.engines.unwrap_or(1 + u32::from(saved.second_engine.is_some()));
    let bin =
        std::env::current_exe().map_err(|source| CliError::Path { path: "this program".into(), source })?;
    let replicas = state_dir.replica_count(plan.given.replicas, shards)?;
    let programs = ChildPrograms { plan, state_dir, shards, replicas, token_file: &token_file, bin: &bin };
    let mut progress = Progress::new(Instant::now());
    // Redis knows the cluster by this name from when an engine leads, whatever becomes of this start.
    state_dir.save_addresses(&saved)?;

    let (first, second) =
        (programs.engine(native, &saved, listen), programs.second_engine(native, &saved, listen));
    children.start(first);
    let engine = progress.wait_for_engine(FIRST_ENGINE, events).await?;
    saved.engine = Some(engine);
    saved.second_engine = None;
    saved.redis = Some(SavedRedis::of(plan.given.redis.as_deref()));
    saved.token_file = named.map(|path| std::path::absolute(&path).unwrap_or(path));
    if engine_count > 1 {
        children.start(second);
        saved.second_engine = Some(progress.wait_for_engine(SECOND_ENGINE, events).await?);
    }
    let engines = saved.second_engine.into_iter().fold(EngineAddresses::from(engine), EngineAddresses::and);
    for shard in ShardProcess::all(shards, replicas) {
        if state_dir.has_saved_jobs(shard) {
            progress.patience.note_busy(Process::Shard(shard));
        }
        children.start(programs.shard(&saved, &engines, listen.ip(), shard));
    }
    for (index, (slowdown, device)) in (0..).zip(plan.slowdowns.iter().zip(&plan.devices)) {
        children.start(programs.worker(native, &engines, index, *slowdown, *device));
    }
    let cluster = Cluster { engines, token };
    let leader = progress.wait_until_ready(&cluster, plan, shards, state_dir, events).await?;
    let of_shards = progress.addresses.iter().filter(|(process, _)| matches!(process, Process::Shard(_)));
    // One that is slow to start goes on being found where it was.
    let names: BTreeSet<String> =
        ShardProcess::all(shards, replicas).map(|shard| Process::Shard(shard).to_string()).collect();
    saved.shards.retain(|name, _| names.contains(name));
    saved.shards.extend(of_shards.map(|(process, address)| (process.to_string(), *address)));
    saved.layout = Some(ShardLayout { shards, replicas });
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
        processes: progress.pids.iter().map(|(process, pid)| (process.to_string(), *pid)).collect(),
    };
    let leading = if leader == engine.to_string() { FIRST_ENGINE } else { SECOND_ENGINE };
    Ok(Started { running, leader, leading })
}

/// The token file that is named, or that was when the cluster began to listen where it goes on to listen for
/// other machines: they have that token.
fn named_token_file(plan: &Plan, saved: &SavedAddresses) -> Option<PathBuf> {
    let is_open = saved.engine.is_some_and(|address| !address.ip().is_loopback());
    let kept = saved.token_file.as_ref().filter(|_| is_open && plan.given.listen.is_none());
    plan.given.token_file.as_ref().or(kept).cloned()
}

/// The token file, named or in the state directory, and its token; the latter file is created if it is
/// missing.
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

/// Where the engine listens: the given address, the saved one, or the default. Where none was given and
/// another program has that port, which no other machine knows, a free one: other commands find it in
/// `up.json`.
async fn engine_address(plan: &Plan, saved: &SavedAddresses) -> Result<SocketAddr, Failure> {
    let address = match (plan.given.listen, saved.engine) {
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
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && plan.given.listen.is_none()
                    && address.ip().is_loopback() =>
            {
                say(&format!("{address} is taken, by another cluster perhaps: this one takes a free port"));
                return Ok(SocketAddr::new(address.ip(), 0));
            }
            Err(source) => return Err(EngineError::Listen { address, source }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        up: super::super::args::UpArgs,
    }

    fn plan(flags: &str) -> Plan {
        let words = format!("up --state-dir d {flags}");
        Line::try_parse_from(words.split_whitespace()).unwrap().up.plan().unwrap()
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_refused_where_it_was_given_and_else_another_port_is_taken() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = other.local_addr().unwrap();
        let saved = SavedAddresses { engine: Some(taken), ..SavedAddresses::default() };
        let given = plan(&format!("--listen {taken}"));
        let not_given = plan("");
        let (refused, free) =
            tokio::join!(engine_address(&given, &saved), engine_address(&not_given, &saved));
        assert!(refused.unwrap_err().to_string().contains("[E240]"));
        assert_eq!(free.unwrap(), SocketAddr::new(taken.ip(), 0));
        drop(other);
        assert_eq!(engine_address(&not_given, &saved).await.unwrap(), taken, "it stays where it was");
    }

    #[test]
    fn an_address_that_is_kept_keeps_its_token_file() {
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
            assert_eq!(named_token_file(&plan(line), &saved), want.map(PathBuf::from), "{before} {line}");
        }
    }
}
