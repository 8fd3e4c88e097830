//! The cluster of a chaos run: one `syncline up` with workers that train, and workers with functions beside
//! it.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use syncline_rpc::threads::lock;
use syncline_workers::client::{Client, RunningCluster, load_token};

use super::network::Network;
use crate::cli::{
    CliError, Failure,
    support::processes::{parent_of, runs, send_signal},
};

/// Workers with functions.
const FUNCTION_WORKERS: usize = 2;

/// What is chosen of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterSize {
    pub engines: u32,
    /// Processes of each shard.
    pub replicas: u32,
    /// Before a process that was killed several times within seconds is started again.
    pub longest_pause: Duration,
}

/// A running cluster. Dropping it ends everything.
pub(super) struct ChaosCluster {
    pub client: Client,
    /// `None` only while one is replaced.
    function_workers: Mutex<Vec<Option<Child>>>,
    /// The way of each of them to the engines.
    networks: Vec<Network>,
    first: RunningCluster,
    up: Child,
}

impl ChaosCluster {
    /// Starts everything in this folder, and waits until it is ready.
    pub(super) async fn start(dir: &Path, size: ClusterSize) -> Result<Self, Failure> {
        let cannot_start = |source| CliError::Path { path: "this program".into(), source };
        let logs = fs::File::create(dir.join("up.log"))
            .map_err(|source| CliError::Path { path: dir.to_owned(), source })?;
        let mut up = this_program().map_err(cannot_start)?;
        up.args(["up", "--listen", "127.0.0.1:0", "--workers", "2", "--shards", "2", "--step-ms", "5"]);
        // As many as there are graphs at a time: trainings of both share every worker.
        up.args(["--trainings", "2"]);
        for (flag, value) in [
            ("--engines", u64::from(size.engines)),
            ("--replicas", u64::from(size.replicas)),
            ("--longest-pause-ms", size.longest_pause.as_millis() as u64),
        ] {
            up.args([flag, &value.to_string()]);
        }
        // What happens to the Redis server must not happen to that of anybody else.
        up.env_remove("SYNCLINE_REDIS").env_remove("SYNCLINE_TOKEN_FILE");
        up.args(["--slowdown", "1,2", "--state-dir"]).arg(dir).stdout(Stdio::piped()).stderr(logs);
        // Ctrl-C is ours: we stop everything cleanly. Where we are killed, the end of its stdin stops it.
        up.arg("--exit-with-parent").stdin(Stdio::piped());
        let begun = Instant::now();
        let mut up = up.process_group(0).spawn().map_err(cannot_start)?;
        // It says where everything is when everything is ready. One that nobody listens to would end.
        let said = up.stdout.take().map(BufReader::new);
        let mut lines = said.into_iter().flat_map(BufRead::lines);
        while lines.next().transpose().map_err(cannot_start)?.is_some_and(|line| !line.starts_with("next")) {}
        let running = RunningCluster::load(dir).map_err(cannot_start)?;
        let Some(first) = running else {
            let _ = up.wait();
            let missing = format!("`syncline up` ended, {} says why", dir.join("up.log").display());
            return Err(CliError::NotReady { after_s: seconds_begun(begun), missing }.into());
        };
        let client = Client::new(first.engines(), load_token(&first.token_file)?);
        let mut cluster =
            Self { client, function_workers: Mutex::default(), networks: Vec::new(), first, up };
        for number in 0..FUNCTION_WORKERS {
            let network = Network::to(&cluster.first.engines()).await;
            let unbound = |source| CliError::Path { path: "a port of 127.0.0.1".into(), source };
            cluster.networks.push(network.map_err(unbound)?);
            let worker = cluster.start_worker(number).map_err(cannot_start)?;
            cluster.workers().push(Some(worker));
        }
        Ok(cluster)
    }

    /// Process ids by name, those of functions included. None of a process that has ended: its number may be
    /// that of another program by now, which is none of our business.
    pub(super) fn processes(&self) -> BTreeMap<String, u32> {
        let written = RunningCluster::load(&self.first.state_dir).ok().flatten();
        let mut all = written.map(|running| running.processes).unwrap_or_default();
        all.retain(|_, pid| parent_of(*pid) == Some(self.up.id()));
        for (number, worker) in self.workers().iter_mut().enumerate() {
            // Its number stays its own until we have asked how it ended.
            if let Some(worker) = worker
                && matches!(worker.try_wait(), Ok(None))
            {
                all.insert(function_worker(number), worker.id());
            }
        }
        all
    }

    /// Whether `syncline up` has ended, which nobody has asked for.
    pub(super) fn has_ended(&self) -> bool {
        !runs(self.up.id())
    }

    /// Where Redis is, with its password.
    pub(super) fn redis_url(&self) -> Option<String> {
        self.first.redis_url()
    }

    /// Starts those workers again that have ended: what `syncline up` does for all others.
    pub(super) fn restart_workers(&self) {
        for (number, worker) in self.workers().iter_mut().enumerate() {
            let has_ended = worker.as_mut().is_none_or(|worker| !matches!(worker.try_wait(), Ok(None)));
            if has_ended {
                *worker = self.start_worker(number).ok();
            }
        }
    }

    /// The way of the worker of this name to the engines, if it can be cut.
    pub(super) fn network_of(&self, name: &str) -> Option<&Network> {
        self.networks
            .iter()
            .enumerate()
            .find(|(number, _)| function_worker(*number) == name)
            .map(|(_, way)| way)
    }

    fn start_worker(&self, number: usize) -> std::io::Result<Child> {
        let mut worker = this_program()?;
        let engines = self.networks[number].engines.to_string();
        worker.args(["chaos-worker", "--exit-with-parent", "--engine", &engines]);
        worker.arg("--token-file").arg(&self.first.token_file).stderr(Stdio::null());
        // In a group of its own, which the system lets go on, and ends, when we are killed while it stands
        // still.
        worker.stdin(Stdio::piped()).process_group(0).spawn()
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Option<Child>>> {
        lock(&self.function_workers)
    }
}

impl Drop for ChaosCluster {
    fn drop(&mut self) {
        // What stands still cannot end cleanly.
        for pid in self.processes().into_values() {
            send_signal(pid, Signal::CONT);
        }
        for mut worker in self.workers().drain(..).flatten() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
        send_signal(self.up.id(), Signal::TERM);
        // Its end is one more reason to stop, and there is time.
        let _stdin = self.up.stdin.take();
        let _ = self.up.wait();
    }
}

/// Seconds since then, the one that has begun included.
fn seconds_begun(since: Instant) -> u64 {
    since.elapsed().as_secs() + 1
}

/// How a worker with functions is called.
fn function_worker(number: usize) -> String {
    format!("functions-{number}")
}

/// Another process of this program, without anything on its stdin.
fn this_program() -> std::io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}
