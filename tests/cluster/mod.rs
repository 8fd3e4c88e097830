//! Real processes: a Redis server, an engine, shards and workers of the real binary, any of which can be
//! killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

#[path = "../../workers/syncline/tests/cli/environment.rs"]
mod environment;
#[path = "../../workers/tests/support/onnxruntime.rs"]
mod onnxruntime;
mod relay;
mod replicated;
mod setup;
#[path = "../waiting/mod.rs"]
mod waiting;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use syncline::Client;
use syncline_engine::store::{
    RedisStore,
    keys::{self, JobKeys},
};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_rpc::{EngineAddresses, Token};
use syncline_scheduler::ids::JobId;

pub use onnxruntime::runtime;
pub use relay::Relay;
pub use replicated::ShardProcess;
pub use waiting::{PATIENCE, eventually};

pub const BINARY: &str = env!("CARGO_BIN_EXE_syncline-under-test");

pub struct Cluster {
    pub redis: RedisServer,
    pub engine: Option<Process>,
    pub engine_address: String,
    /// A second engine, where one was asked for.
    pub standby: Option<Process>,
    /// Addresses of all engines, as everybody is told them.
    pub engines: String,
    pub shards: Vec<Process>,
    /// Where shards have two processes: all of them.
    pairs: Vec<ShardProcess>,
    pub workers: Vec<Process>,
    pub store: RedisStore,
    pub token: Token,
    shard_count: u32,
    /// After how long the engine misses a shard; `None`: it is not told.
    shard_silence_ms: Option<u32>,
    /// Between Redis and the engine that leads first, where one was asked for.
    relay: Option<Relay>,
    /// Removed last: whoever still runs would write into it again.
    pub dir: tempfile::TempDir,
}

/// A child that is killed when it is dropped.
pub struct Process(Child);

impl Process {
    /// Starts `syncline ARGS` and waits for its line `listening ADDR` if it prints one.
    fn spawn(args: &[String], listens: bool) -> (Self, String) {
        Self::spawn_by(&[], args, listens)
    }

    /// The same, started by a command that ends in executing what follows.
    fn spawn_by(starter: &[&str], args: &[String], listens: bool) -> (Self, String) {
        let mut words = starter.iter().copied().chain([BINARY]);
        let mut command = Command::new(words.next().unwrap());
        let mut child = environment::forget_ours(&mut command)
            .args(words)
            .args(args)
            .env("SYNCLINE_LOG", std::env::var("SYNCLINE_LOG").unwrap_or_else(|_| "error".into()))
            // As `syncline up` does: whoever looks for it reads all of it.
            .env("ORT_DYLIB_PATH", runtime().path())
            .stdin(Stdio::null())
            .stdout(if listens { Stdio::piped() } else { Stdio::null() })
            .spawn()
            .unwrap();
        let mut address = String::new();
        if let Some(out) = child.stdout.take() {
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line).unwrap();
            address = line
                .trim()
                .strip_prefix("listening ")
                .unwrap_or_else(|| panic!("no address: {line:?}"))
                .into();
        }
        (Self(child), address)
    }

    /// Starts another program, which says nothing on stdout.
    pub fn of(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal, by name.
    pub fn signal(&self, name: &str) {
        send_signal(self.0.id(), name);
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) {
        self.0.wait().unwrap();
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to any process, by name. What gets `STOP` stands still when this returns.
pub fn send_signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success(), "no signal {name} to {pid}");
    let deadline = Instant::now() + PATIENCE;
    while name == "STOP" && !stands_still(pid) {
        assert!(Instant::now() < deadline, "{pid} does not stand still");
        std::thread::yield_now();
    }
}

/// Each thread of a process stops by itself, some time after the signal.
fn stands_still(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.map(|thread| std::fs::read_to_string(thread.path().join("stat"))).all(|stat| {
        // The state comes behind the name in parentheses. A thread that has ended since does nothing any
        // more.
        stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with(['T', 'Z', 'X']))
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Cluster {
    /// The link of the engine that leads first to Redis.
    pub fn relay(&self) -> &Relay {
        self.relay.as_ref().unwrap()
    }

    fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// Starts the engine, again at the same address if it ran before.
    pub fn start_engine(&mut self) {
        let (process, address) = self.spawn_engine(&self.engine_address, "test");
        self.engine = Some(process);
        self.engine_address = address;
    }

    /// Waits until the engine of this name leads.
    pub async fn until_led_by(&self, instance: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lead = self.store.hash("look", keys::ENGINE).await.unwrap();
            if lead.get("instance").is_some_and(|leads| leads == instance) {
                return;
            }
            assert!(Instant::now() < deadline, "{instance} does not lead: {lead:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// An engine on the same Redis server, and where it listens.
    fn spawn_engine(&self, listen: &str, instance: &str) -> (Process, String) {
        Process::spawn(&self.engine_args(listen, instance), true)
    }

    fn engine_args(&self, listen: &str, instance: &str) -> Vec<String> {
        let redis = match &self.relay {
            Some(relay) if instance == "test" => {
                self.redis.address().replace(&self.redis.port().to_string(), &relay.port().to_string())
            }
            _ => self.redis.address(),
        };
        let shard_silence = self
            .shard_silence_ms
            .map_or_else(String::new, |silence_ms| format!("--shard-silence-ms {silence_ms}"));
        words(&format!(
            "engine --listen {listen} --token-file {} --redis {redis} --redis-password-file {} --instance {instance} \
             --shards {} --silence-ms 3000 {shard_silence}",
            self.token_file().display(),
            self.redis.password_file().display(),
            self.shard_count,
        ))
    }

    /// Engine and Redis are dead; the engine is started first, as in a machine room where one boots faster,
    /// and Redis once the engine says that it waits.
    pub fn start_engine_before_redis(&mut self) {
        let args = self.engine_args(&self.engine_address, "test");
        let log = self.dir.path().join("waiting-engine.log");
        let logs = format!("exec env SYNCLINE_LOG=warn \"$0\" \"$@\" 2> '{}'", log.display());
        send_signal(self.redis.pid(), "KILL");
        let starting = self.restart_redis(|_| {
            let start = move || Process::spawn_by(&["sh", "-c", &logs], &args, true);
            let starting = std::thread::spawn(start);
            let deadline = Instant::now() + PATIENCE;
            while !std::fs::read_to_string(&log).is_ok_and(|said| said.contains("is waited for")) {
                assert!(Instant::now() < deadline, "the engine does not say that it waits");
                std::thread::sleep(Duration::from_millis(20));
            }
            starting
        });
        let (process, address) = tokio::task::block_in_place(|| starting.join().unwrap());
        (self.engine, self.engine_address) = (Some(process), address);
    }

    /// Stops the Redis server cleanly, unless somebody has killed it, and, after `meanwhile`, starts it again
    /// on the same files at the same place.
    pub fn restart_redis<T>(&mut self, meanwhile: impl FnOnce(&Path) -> T) -> T {
        let (dir, port) = (self.redis.dir().to_owned(), self.redis.port());
        tokio::task::block_in_place(|| {
            let idle = RedisOptions::new(dir.with_extension("idle"));
            drop(std::mem::replace(&mut self.redis, RedisServer::start(redis_program(), idle).unwrap()));
            let done = meanwhile(&dir);
            let again = RedisOptions { port: Some(port), ..RedisOptions::new(&dir) };
            self.redis = RedisServer::start(redis_program(), again).unwrap();
            done
        })
    }

    pub fn kill_engine(&mut self) {
        self.engine.take().unwrap().kill();
    }

    fn spawn_shard(&self, index: u32) -> Process {
        Process::spawn(&self.shard_args(&self.shard_folder(index), index, 1), true).0
    }

    /// Starts a shard again, on another port.
    pub fn start_shard(&mut self, index: u32) {
        self.shards[index as usize] = self.spawn_shard(index);
    }

    /// Where a shard keeps what it must not forget.
    pub fn shard_folder(&self, index: u32) -> PathBuf {
        self.dir.path().join(format!("shard-{index}"))
    }

    /// Stops a shard cleanly and, after `meanwhile`, starts it again on another port.
    pub fn restart_shard(&mut self, index: u32, meanwhile: impl FnOnce()) {
        let slot = index as usize;
        self.shards[slot].signal("TERM");
        let ended = self.shards[slot].0.wait().unwrap();
        assert!(ended.success(), "{ended}");
        meanwhile();
        self.shards[slot] = self.spawn_shard(index);
    }

    /// Stops two shards cleanly and starts each again at the address of the other.
    pub async fn exchange_shards(&mut self) {
        let mut addresses = self.client().shards().await.unwrap();
        addresses.reverse();
        for shard in &mut self.shards {
            shard.signal("TERM");
        }
        for (index, address) in (0..).zip(addresses) {
            self.shards[index as usize].wait();
            let mut args = self.shard_args(&self.shard_folder(index), index, 1);
            args.extend(["--listen".to_owned(), address]);
            self.shards[index as usize] = Process::spawn(&args, true).0;
        }
    }

    /// What starts a shard that is stopped, and stops it cleanly so long after its process has begun.
    pub fn shard_stopper(&self, index: u32) -> impl Fn(Duration) + use<> {
        let args = self.shard_args(&self.shard_folder(index), index, 1);
        move |after| {
            let mut shard = Process::spawn(&args, false).0;
            std::thread::sleep(after);
            shard.signal("TERM");
            shard.0.wait().unwrap();
        }
    }

    /// What starts a shard that is stopped, on stdout and stdin of the test's choice.
    pub fn shard_command(&self, index: u32) -> Command {
        let mut command = Command::new(BINARY);
        environment::forget_ours(&mut command);
        command.args(self.shard_args(&self.shard_folder(index), index, 1)).stderr(Stdio::null());
        command
    }

    pub fn spawn_worker(&self, flags: &str) -> Process {
        self.spawn_worker_by(&[], flags)
    }

    /// A worker that is started by a command which ends in executing what follows.
    pub fn spawn_worker_by(&self, starter: &[&str], flags: &str) -> Process {
        // Each computes on one thread, unless a test says otherwise.
        let threads = if flags.contains("--threads") { "" } else { "--threads 1" };
        let args = words(&format!(
            "worker --engine {} --token-file {} {threads} {flags}",
            self.engines,
            self.token_file().display(),
        ));
        Process::spawn_by(starter, &args, false).0
    }

    /// What `syncline COMMAND` prints for people.
    pub fn print(&self, command: &str) -> String {
        let done = self.ask(&self.engines, command);
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Runs `syncline COMMAND --engine ENGINES` to its end.
    pub fn ask(&self, engines: &str, command: &str) -> Output {
        let flags = words(&format!("--engine {engines} --token-file {}", self.token_file().display()));
        environment::forget_ours(&mut Command::new(BINARY)).args(words(command)).args(flags).output().unwrap()
    }

    pub fn client(&self) -> Client {
        Client::new(self.engines.parse::<EngineAddresses>().unwrap(), self.token.clone())
    }

    /// The job's summary as it stands in Redis.
    pub async fn summary(&self, job: &JobId) -> BTreeMap<String, String> {
        self.store.hash("read job", &JobKeys::new(job).job).await.unwrap()
    }

    /// Looks at the job in Redis, once it is there, until `enough` says so. While the job goes on it is
    /// waited for longer: a busy machine takes longer for the same work.
    pub async fn until(
        &self,
        job: &JobId,
        enough: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> BTreeMap<String, String> {
        let began = Instant::now();
        let (mut applied, mut deadline) = (0, began + PATIENCE);
        loop {
            let summary = self.summary(job).await;
            if !summary.is_empty() && enough(&summary) {
                return summary;
            }
            let now = Instant::now();
            // Of a job of general tasks there are none.
            if let Some(more) = number_if_any(&summary, "samples_applied").filter(|more| *more > applied) {
                (applied, deadline) = (more, now + PATIENCE);
            }
            assert!(now < deadline.min(began + 10 * PATIENCE), "waited for too long: {summary:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The numbers of the workers that are there, as soon as there are `enough`.
    pub async fn until_there(&self, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let workers = self.client().workers().await.unwrap();
            let ids: Vec<String> = workers.into_iter().map(|worker| worker.id.to_string()).collect();
            if enough(&ids) {
                return ids;
            }
            assert!(Instant::now() < deadline, "waited for too long: {ids:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn until_over(&self, job: &JobId) -> BTreeMap<String, String> {
        let over = |s: &BTreeMap<String, String>| {
            matches!(s.get("state").map(String::as_str), Some("done" | "failed" | "canceled"))
        };
        self.until(job, over).await
    }
}

/// A field that is a number, and always there.
#[track_caller]
pub fn number(summary: &BTreeMap<String, String>, field: &str) -> u64 {
    number_if_any(summary, field).unwrap_or_else(|| panic!("there is no {field} in {summary:?}"))
}

/// A field that is a number where there is anything to say, such as of the newest checkpoint.
#[track_caller]
pub fn number_if_any(summary: &BTreeMap<String, String>, field: &str) -> Option<u64> {
    let text = summary.get(field).filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{field} is no number in {summary:?}")))
}

/// The program of a Redis server, looked for once.
pub fn redis_program() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap().path)
}
