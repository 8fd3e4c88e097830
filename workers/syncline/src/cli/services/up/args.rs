//! The arguments of `up`, checked and turned into a plan.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use syncline_kit::Device;
use syncline_ps::transport::TransportChoice;
use syncline_scheduler::tasks::MemorySize;
use syncline_workers::{
    client::state_dir,
    worker::{Throttle, gpu_memory, threads_each},
};

use super::{super::engine::SHORTEST_SILENCE, DEFAULT_LISTEN};
use crate::cli::{
    CliError,
    TimeUnit::{Milliseconds, Seconds},
    check_open_bind, number,
    support::connection::environment_names_a_cluster,
    time, time_from,
};

/// Default duration of an iteration when machines of different speed are emulated.
const EMULATED_STEP_MS: u64 = 10;

#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=1024))]
    workers: u32,
    /// Number of shards of the parameter server [default: as before, else 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) shards: Option<u32>,
    /// How many processes hold each shard: with 2 a second one has everything that is acknowledged, and
    /// takes over when the first dies [default: as before, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(super) replicas: Option<u32>,
    /// How many engines run: with 2 one leads and the other stands by, and takes over when the first is gone
    /// [default: as before, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(super) engines: Option<u32>,
    /// How many times slower each worker is than the fastest, such as 1,1,1,2.5; emulated by sleeping
    #[arg(long, value_name = "F,F,...", value_delimiter = ',', value_parser = number::<f64>("factors, such as 1,1,1,2.5"))]
    slowdown: Vec<f64>,
    /// Shortest duration of an iteration on a whole batch, before the worker's slowdown; one on fewer
    /// samples is shorter in proportion. Where it computes longer, as with 0, the slowdown is on that
    /// [default: 10 with --slowdown, else 0]
    #[arg(long, value_name = "MS", value_parser = number::<u64>("whole milliseconds, such as 10"))]
    step_ms: Option<u64>,
    /// Jobs that each worker trains for at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) trainings: u32,
    /// General tasks that each worker runs at the same time: many where async functions wait for others
    /// [default: 1; with --worker-bin the cores of
    /// this machine, or what that program says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) slots: Option<u32>,
    /// Threads on which each worker computes [default: the cores of the machine, shared among the workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// What the workers compute on: cpu, or cuda:N for an NVIDIA GPU, counted from 0; one for all, or one
    /// for each
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', default_value = "cpu")]
    device: Vec<Device>,
    /// Most memory of its GPU that each model of a worker may take, such as 8GiB: a training, its evaluation
    /// and the ONNX models of general tasks each [default: all there is]
    #[arg(long, value_name = "SIZE", value_parser = gpu_memory)]
    pub(super) gpu_memory: Option<MemorySize>,
    /// A parameter shard that is not heard of for this long counts as lost: running jobs that it holds wait
    /// for it, without workers; a number alone is milliseconds [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time_from(SHORTEST_SILENCE, Milliseconds))]
    pub(super) shard_silence: Option<Duration>,
    /// Use this Redis server instead of starting one
    #[arg(long, value_name = "URL", env = "SYNCLINE_REDIS", hide_env_values = true)]
    pub(super) redis: Option<String>,
    /// How long a Redis server that was named is waited for at the start; a number alone is seconds
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time(Seconds))]
    pub(super) redis_wait: Duration,
    /// Go on with the jobs of another cluster that the named Redis server holds, whose state directory is
    /// lost for good. What they had trained comes only with that directory: `syncline submit --new` begins
    /// anew
    #[arg(long, requires = "redis")]
    pub(super) take_over: bool,
    /// Folder of the cluster's state [default: $XDG_STATE_HOME/syncline or ~/.local/state/syncline]
    #[arg(long, value_name = "DIR", env = "SYNCLINE_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// IP address and port on which the engine listens, and the shards beside it; port 0 takes a free one
    /// and keeps it [default: as before, else 127.0.0.1:7461; a free port of this machine where that is
    /// taken]
    #[arg(long, value_name = "ADDR")]
    pub(super) listen: Option<SocketAddr>,
    /// File with the secret of the cluster, instead of the one that is made in the state directory
    #[arg(long, value_name = "FILE", env = "SYNCLINE_TOKEN_FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// How parameters and gradients travel between workers and shards: shm for shared memory, unix or tcp;
    /// auto takes the fastest that works
    #[arg(long, value_name = "NAME", env = "SYNCLINE_TRANSPORT", default_value_t)]
    pub(super) transport: TransportChoice,
    /// Program to start for each worker instead of this one, as `PROGRAM worker ...`: one whose main is that
    /// of `Worker::builder()`
    #[arg(long, value_name = "PROGRAM")]
    pub(super) worker_bin: Option<PathBuf>,
    /// The longest pause before what has ended is started again: for those who end it themselves
    #[arg(long, value_name = "MS", default_value_t = 5_000, hide = true)]
    longest_pause_ms: u64,
    /// Stop when stdin closes: for a program that starts a cluster of its own, however that program ends
    #[arg(long)]
    pub(super) exit_with_parent: bool,
    /// One JSON object on stdout when everything is ready
    #[arg(long)]
    pub(super) json: bool,
}

/// What `up` does.
#[derive(Debug)]
pub(crate) struct Plan {
    /// As it was said; where what follows is about the same, that holds.
    pub given: UpArgs,
    /// Slowdown of each worker.
    pub slowdowns: Vec<f64>,
    /// What each worker computes on; as many as there are slowdowns.
    pub devices: Vec<Device>,
    pub step_ms: u64,
    /// Threads on which each worker computes.
    pub threads: usize,
    /// Before a child that ended is started again.
    pub longest_pause: Duration,
    pub state_dir: PathBuf,
    /// Other commands need the flag as well.
    pub state_dir_named: bool,
}

impl UpArgs {
    pub(crate) fn plan(self) -> Result<Plan, CliError> {
        let refuse = |what: String| Err(CliError::Setting { what });
        let workers = self.workers as usize;
        let emulated = !self.slowdown.is_empty();
        let slowdowns = if emulated { self.slowdown.clone() } else { vec![1.0; workers] };
        if slowdowns.len() != workers {
            return refuse(format!("--slowdown names {} workers, --workers says {workers}", slowdowns.len()));
        }
        let devices = match self.device.as_slice() {
            &[device] => vec![device; workers],
            each if each.len() == workers => each.to_vec(),
            each => {
                return refuse(format!("--device names {} workers, --workers says {workers}", each.len()));
            }
        };
        if self.gpu_memory.is_some() && devices.iter().all(|device| *device == Device::Cpu) {
            return refuse("--gpu-memory needs a worker on a GPU, such as --device cuda:0".to_owned());
        }
        if let Some(bad) = slowdowns.iter().find(|slowdown| !Throttle::takes(**slowdown)) {
            return refuse(format!("a worker cannot be {bad} times slower"));
        }
        if let Some(listen) = self.listen {
            check_open_bind(listen, self.token_file.as_deref())?;
            if listen.ip().is_unspecified() {
                // Shards would announce themselves at an address that means another machine to everybody
                // else.
                return refuse(format!("--listen {listen} is no address; name one address of this machine"));
            }
        }
        let state_dir = state_dir(self.state_dir.as_deref())?;
        let kept = [Some(state_dir.as_path()), self.token_file.as_deref()];
        if let Some(path) = kept.into_iter().flatten().find(|path| path.to_str().is_none()) {
            // Other commands find the cluster by what is kept of it as text.
            return refuse(format!("the path {} is not UTF-8: name another one", path.display()));
        }
        Ok(Plan {
            slowdowns,
            devices,
            step_ms: self.step_ms.unwrap_or(if emulated { EMULATED_STEP_MS } else { 0 }),
            threads: self.threads.map_or_else(|| threads_each(workers), |threads| threads as usize),
            longest_pause: Duration::from_millis(self.longest_pause_ms),
            state_dir_named: self.state_dir.is_some() || environment_names_a_cluster(),
            state_dir,
            given: self,
        })
    }
}

/// An address that is not taken anywhere, for texts and tests.
pub(crate) fn default_listen() -> Result<SocketAddr, CliError> {
    DEFAULT_LISTEN.parse().map_err(|_| CliError::Setting { what: format!("{DEFAULT_LISTEN} is no address") })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use clap::Parser;

    use super::*;
    use crate::cli::services::up::programs::engine_options;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        up: UpArgs,
    }

    fn plan(line: &str) -> Result<Plan, CliError> {
        let words = format!("up --state-dir d {line}");
        Line::try_parse_from(words.split_whitespace()).unwrap().up.plan()
    }

    #[test]
    fn workers_share_the_cores_unless_somebody_says_how_many_threads_they_have() {
        let threads = |line: &str| plan(line).unwrap().threads;
        let cores = thread::available_parallelism().unwrap().get();
        assert_eq!((threads("--workers 1"), threads("--workers 0")), (cores, cores));
        assert_eq!((threads("--workers 1000"), threads("--workers 3 --threads 7")), (1, 7));
    }

    #[test]
    fn a_folder_whose_name_is_no_text_is_refused_before_anything_begins() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

        let words = [OsStr::new("up"), OsStr::new("--state-dir"), OsStr::from_bytes(b"s\xff")];
        let error = Line::try_parse_from(words).unwrap().up.plan().unwrap_err();
        assert!(error.to_string().starts_with("[E509] the path"), "{error}");
    }

    #[test]
    fn settings_table() {
        #[rustfmt::skip]
        let cases = [
            ("",                                        Ok((4, 0))),
            ("--workers 2",                             Ok((2, 0))),
            ("--slowdown 1,1,1,2.5",                    Ok((4, 10))),
            ("--slowdown 1,1,1,2.5 --step-ms 0",        Ok((4, 0))),
            ("--workers 3 --slowdown 1,2",              Err("E509")),
            ("--workers 1 --slowdown 0",                Err("E509")),
            ("--workers 2 --slowdown 1,1e30",           Err("E509")),
            ("--workers 2 --device cuda:0,cuda:1",      Ok((2, 0))),
            ("--workers 3 --device cuda:0,cuda:1",      Err("E509")),
            ("--listen 0.0.0.0:1 --token-file t",       Err("E509")),
            ("--listen 10.0.0.1:1",                     Err("E501")),
        ];
        for (line, want) in cases {
            match (plan(line), want) {
                (Ok(plan), Ok(want)) => assert_eq!((plan.slowdowns.len(), plan.step_ms), want, "{line}"),
                (Err(error), Err(code)) => assert!(error.to_string().contains(code), "{line}: {error}"),
                (plan, _) => panic!("{line}: {plan:?}"),
            }
        }
    }

    #[test]
    fn the_engine_is_told_how_long_a_shard_may_be_silent_where_somebody_says_so() {
        let options = |line: &str| engine_options(&plan(line).unwrap(), "a", 2);
        let common = [("--instance", "a".to_owned()), ("--shards", "2".to_owned())];
        assert_eq!(options(""), common);
        let told = options("--shard-silence 2m");
        assert_eq!((&told[..2], &told[2..]), (&common[..], &[("--shard-silence", "120000".to_owned())][..]));
    }

    #[test]
    fn one_device_serves_all_workers_and_several_one_each() {
        use Device::{Cpu, Cuda};
        #[rustfmt::skip]
        let cases = [
            ("--workers 2",                        vec![Cpu, Cpu]),
            ("--workers 2 --device cuda:1",        vec![Cuda(1), Cuda(1)]),
            ("--workers 2 --device cuda:0,cpu",    vec![Cuda(0), Cpu]),
            ("--workers 0 --device cuda:0",        vec![]),
        ];
        for (line, want) in cases {
            assert_eq!(plan(line).unwrap().devices, want, "{line}");
        }
        assert_eq!(
            plan("--device cuda:0 --gpu-memory 8GiB").unwrap().given.gpu_memory.map(|size| size.0),
            Some(8 << 30)
        );
        assert!(plan("--gpu-memory 8GiB").unwrap_err().to_string().contains("E509"));
        let refused = Line::try_parse_from(["up", "--device", "gpu"]).err().unwrap().to_string();
        assert!(refused.contains("[E490] `gpu` is no device"), "{refused}");
    }

    #[test]
    fn the_default_address_is_one() {
        assert!(default_listen().unwrap().ip().is_loopback());
    }
}
