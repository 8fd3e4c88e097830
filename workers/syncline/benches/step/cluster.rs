//! Syncline for real: Redis, the engine, shards and one worker, each a process of its own.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use syncline::{Client, Entry, MetricsPoint};
use syncline_engine::rpc::{EngineAddresses, Token};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_ps::transport::Choice;
use syncline_runtime::Runtime;
use syncline_scheduler::spec::DataSpec;

use super::{
    process::Process,
    report::Sample,
    work::{self, Case},
};

/// Part of a run that counts as start-up and is left out of the step time.
const WARM_SHARE: f64 = 0.25;

/// A running cluster.
pub struct Cluster {
    name: String,
    client: Client,
    jobs: u32,
    /// By role, in the order of the table; dropped before Redis.
    processes: Vec<(&'static str, Process)>,
    redis: RedisServer,
}

/// An entry of the metrics stream.
#[derive(Clone, Copy)]
struct Beat {
    at_ms: f64,
    /// Since the start of the job.
    samples: f64,
    /// In this report.
    iterations: f64,
    compute_us: f64,
}

impl Cluster {
    pub async fn start(shards: usize, transport: Choice, dir: &Path) -> Result<Self> {
        let dir = dir.join(format!("cluster-{shards}"));
        fs::create_dir_all(&dir)?;
        let program = syncline_kit::redis_server(&|line| eprintln!("{line}"))?;
        let redis = RedisServer::start(&program.path, RedisOptions::new(dir.join("redis")))?;
        let (secret, redis_url) = (dir.join("token"), redis.url());
        let token = Token::load_or_create(&secret)?;
        let secret = secret.to_string_lossy();
        let line = format!("engine --listen 127.0.0.1:0 --shards {shards}");
        let env = [("SYNCLINE_REDIS", redis_url.as_str())];
        let (engine, address) = Process::listening_with(&words(&line, &secret), &env)?;
        let mut processes = vec![("engine", engine)];
        for index in 0..shards {
            let line = format!("ps --engine {address} --shard {index}/{shards} --state-dir");
            let state = dir.join(format!("shard-{index}")).to_string_lossy().into_owned();
            let mut words = words(&line, &secret);
            words.insert(words.len() - 2, state);
            processes.push(("shards", Process::listening(&words)?.0));
        }
        let line = format!("worker --engine {address} --transport {transport}");
        processes.push(("worker", Process::start(&words(&line, &secret))?));
        let client = Client::new(address.parse::<EngineAddresses>()?, token);
        client.shards().await?;
        Ok(Self { name: format!("s{shards}"), client, jobs: 0, processes, redis })
    }

    /// Trains one job and reads from Redis what its worker reported.
    pub async fn train(&mut self, runtime: &Runtime, case: &Case, data: &DataSpec) -> Result<Sample> {
        self.jobs += 1;
        let id = format!("{}-{}-{}", case.name, self.name, self.jobs);
        let prepared = work::job(runtime, &id, case, data)?;
        let job = prepared.spec.id.clone();
        let before = self.cpu_us();
        self.client.submit_prepared(prepared).await?;
        let view = self.client.wait(&job, |_| ()).await?;
        let after = self.cpu_us();
        let points = self.client.metrics(&job, None).await?;
        let beat = |point: &Entry<MetricsPoint>| Beat {
            at_ms: point.value.at_ms as f64,
            samples: point.value.samples as f64,
            iterations: point.value.iterations as f64,
            compute_us: point.value.compute_us as f64,
        };
        let beats: Vec<Beat> = points.iter().map(beat).collect();
        let (step_ms, compute_ms) = steady(&beats, case).context("too few reports to measure")?;
        let staleness = points.iter().map(|point| point.value.staleness_max as f64).fold(0.0, f64::max);
        let spent = view.workers.into_iter().next().context("a worker")?;
        let steps = spent.iterations as f64;
        let each = |us: u64| us as f64 / 1e3 / steps;
        Ok(Sample {
            step_ms,
            compute_ms,
            pull_ms: each(spent.pull_us + spent.wait_us),
            push_ms: each(spent.push_us),
            staleness,
            steps,
            cpu_ms: after.iter().map(|(role, us)| (*role, each(us - before[role]))).collect(),
        })
    }

    /// Processor time of each role so far.
    fn cpu_us(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::from([("redis", cpu_us(self.redis.pid()))]);
        for (role, process) in &self.processes {
            *all.entry(*role).or_default() += cpu_us(process.pid());
        }
        all
    }
}

/// A command line, with the token file at its end.
fn words(line: &str, secret: &str) -> Vec<String> {
    line.split_whitespace().chain(["--token-file", secret]).map(str::to_owned).collect()
}

/// Processor time of a process, threads that have ended included. Linux counts in hundredths of a second.
fn cpu_us(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: field 3 on; user and system time are 14 and 15.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>() * 10_000
}

/// Time of one step and of its compute part, in ms, between the first kept report behind the start-up and the last.
fn steady(beats: &[Beat], case: &Case) -> Option<(f64, f64)> {
    let last = beats.last()?;
    let first = beats.iter().position(|b| b.samples >= last.samples * WARM_SHARE)?;
    let (first, kept) = (&beats[first], &beats[first + 1..]);
    let steps = (last.samples - first.samples) / case.batch as f64;
    let compute_us: f64 = kept.iter().map(|b| b.iterations * b.compute_us).sum();
    (steps > 0.0).then(|| ((last.at_ms - first.at_ms) / steps, compute_us / 1e3 / steps))
}
