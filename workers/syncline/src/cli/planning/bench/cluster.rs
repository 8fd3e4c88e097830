//! A cluster for one measurement: a Redis server that writes everything down, an engine, and workers, each a
//! process of its own. Values that are small need no parameter server: there is one only where it is asked
//! for.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use syncline_kit::{Device, RedisOptions, RedisServer};
use syncline_ps::transport::TransportChoice;
use syncline_rpc::{EngineAddresses, Token};
use syncline_workers::{
    blocking,
    client::{Client, token_file},
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::cli::{
    CliError, Failure, say,
    support::processes::{cpu_ticks, stat},
};

/// The workers, by the lane of each: a task may be bound to one of them.
pub(super) const LANES: [&str; 2] = ["a", "b"];
/// Everything must be there within this time.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The parameter server of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shards {
    pub count: u32,
    /// Processes of each.
    pub replicas: u32,
}

impl Shards {
    fn none() -> Self {
        Self { count: 0, replicas: 1 }
    }
}

/// A running cluster. Dropping it stops everything: first those that need the others.
pub(super) struct BenchCluster {
    pub client: Client,
    workers: Vec<Process>,
    shards: Vec<Process>,
    engine: Process,
    pub redis: RedisServer,
    _dir: TempDir,
}

impl BenchCluster {
    /// Starts everything and waits until both workers are registered.
    pub(super) async fn start() -> Result<Self, Failure> {
        Self::start_all(Shards::none(), &lanes()).await
    }

    /// The same with one parameter shard, for large values.
    pub(super) async fn start_with_shard() -> Result<Self, Failure> {
        Self::start_all(Shards { count: 1, replicas: 1 }, &lanes()).await
    }

    /// Parameter shards and workers that train, each so many times slower than it could be.
    pub(super) async fn start_training(
        slowdowns: &[f64],
        transport: TransportChoice,
        shards: Shards,
    ) -> Result<Self, Failure> {
        let worker = |slowdown: &f64| {
            [
                "worker",
                "--threads",
                "1",
                "--slowdown",
                &slowdown.to_string(),
                "--transport",
                &transport.to_string(),
            ]
            .map(str::to_owned)
            .to_vec()
        };
        Self::start_all(shards, &slowdowns.iter().map(worker).collect::<Vec<_>>()).await
    }

    /// One parameter shard, and one worker that trains on this device.
    pub(super) async fn start_training_on(device: Device) -> Result<Self, Failure> {
        let worker =
            ["worker", "--threads", "1", "--device", &device.to_string()].map(str::to_owned).to_vec();
        Self::start_all(Shards { count: 1, replicas: 1 }, &[worker]).await
    }

    /// `workers`: the command of each.
    async fn start_all(shards: Shards, workers: &[Vec<String>]) -> Result<Self, Failure> {
        let dir = tempfile::tempdir().map_err(cannot_use(&env::temp_dir()))?;
        let redis_dir = dir.path().join("redis");
        let redis = blocking(move || -> Result<_, Failure> {
            let program = syncline_kit::redis_server(&say)?.path;
            Ok(RedisServer::start(&program, RedisOptions::new(redis_dir))?)
        })
        .await?;
        let token_file = token_file(dir.path());
        let token = Token::load_or_create(&token_file).map_err(cannot_use(&token_file))?;
        // An engine of none at all does not exist; without one it is idle for jobs that train only.
        let count = shards.count.max(1).to_string();
        let args = ["engine", "--listen", "127.0.0.1:0", "--shards", &count];
        let (engine, engines) = Process::engine(&args, &token_file, &redis.url())?;
        let address = engines.to_string();
        let shard = |process: u32| {
            let state_dir = dir.path().join(format!("shard-{process}")).to_string_lossy().into_owned();
            let index = format!("{}/{}", process / shards.replicas, shards.count);
            let replicas = shards.replicas.to_string();
            let args = ["ps", "--shard", &*index, "--replicas", &*replicas, "--engine", &*address];
            Process::start(&[&args[..], &["--state-dir", &*state_dir]].concat(), &token_file, None)
        };
        let shards = (0..shards.count * shards.replicas)
            .map(shard)
            .collect::<io::Result<Vec<_>>>()
            .map_err(cannot_run)?;
        let worker = |command: &Vec<String>| {
            let words = command.iter().map(String::as_str).chain(["--engine", &*address]);
            Process::start(&words.collect::<Vec<_>>(), &token_file, None)
        };
        let workers = workers.iter().map(worker).collect::<io::Result<Vec<_>>>().map_err(cannot_run)?;
        let client = Client::new(engines, token);
        let cluster = Self { client, workers, shards, engine, redis, _dir: dir };
        cluster.ready().await?;
        Ok(cluster)
    }

    async fn ready(&self) -> Result<(), Failure> {
        let since = Instant::now();
        loop {
            let about = self.client.engine().await?;
            let there = about.worker_pids.len();
            let is_whole = about.shard_problem.is_none() && about.standby_problem.is_none();
            let has_shards = self.shards.is_empty() || is_whole;
            if about.idle.is_none() && there == self.workers.len() && has_shards {
                return Ok(());
            }
            if since.elapsed() > READY_TIMEOUT {
                let missing = format!("{there} of {} workers are registered", self.workers.len());
                return Err(CliError::NotReady { after_s: READY_TIMEOUT.as_secs(), missing }.into());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

impl BenchCluster {
    /// Every process, by what it is.
    pub(super) fn processes(&self) -> Vec<(&'static str, u32)> {
        let all = |role, processes: &[Process]| -> Vec<(&'static str, u32)> {
            processes.iter().map(|process| (role, process.0.id())).collect()
        };
        let mut found = vec![("redis", self.redis.pid()), ("engine", self.engine.0.id())];
        found.extend(all("shards", &self.shards));
        found.extend(all("worker", &self.workers));
        found
    }

    /// Processor time of each role so far.
    pub(super) fn cpu_us_by_role(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (role, pid) in self.processes() {
            *all.entry(role).or_default() += cpu_us(pid);
        }
        all
    }
}

/// Processor time of a process, threads that have ended included. Linux counts in hundredths of a second.
fn cpu_us(pid: u32) -> u64 {
    let [user, system, ..] = stat(pid).and_then(|stat| cpu_ticks(&stat)).unwrap_or_default();
    (user + system) * 10_000
}

/// Two workers that run functions of this program.
fn lanes() -> Vec<Vec<String>> {
    LANES.map(|lane| ["bench-worker", "--lane", lane].map(str::to_owned).to_vec()).to_vec()
}

/// A child of this program; it ends when it is dropped, and when this process does.
struct Process(Child);

impl Process {
    fn start(args: &[&str], token_file: &Path, redis: Option<&str>) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        // The password of another server is not that of the one here.
        command.env_remove("SYNCLINE_REDIS_PASSWORD_FILE");
        command.args(args).arg("--exit-with-parent").arg("--token-file").arg(token_file);
        // What the measurement shows is not their talk, unless somebody asks for it.
        command.env("SYNCLINE_LOG", env::var_os("SYNCLINE_LOG").unwrap_or_else(|| "error".into()));
        // Not as an argument: everybody on this machine can read those, and the address holds a password.
        command.envs(redis.map(|url| (OsString::from("SYNCLINE_REDIS"), OsString::from(url))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Self)
    }

    /// An engine, and where it listens.
    fn engine(args: &[&str], token_file: &Path, redis: &str) -> Result<(Self, EngineAddresses), Failure> {
        let begun = Instant::now();
        let mut engine = Self::start(args, token_file, Some(redis)).map_err(cannot_run)?;
        let mut line = String::new();
        if let Some(out) = engine.0.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(cannot_run)?;
        }
        let address = line.trim().strip_prefix("listening ").and_then(|address| address.parse().ok());
        // Seconds, the one that has begun included.
        let after_s = begun.elapsed().as_secs() + 1;
        let missing = || "the engine ended, see above".to_owned();
        Ok((engine, address.ok_or_else(|| CliError::NotReady { after_s, missing: missing() })?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when this pipe closes.
        drop(self.0.stdin.take());
        // It may have ended by itself.
        let _ = self.0.wait();
    }
}

fn cannot_use(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| CliError::Path { path, source }
}

fn cannot_run(source: io::Error) -> CliError {
    CliError::Path { path: env::current_exe().unwrap_or_default(), source }
}
