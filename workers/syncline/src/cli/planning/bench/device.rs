//! `syncline bench device`: the training step of a job on one device, as the bare loop and as a worker of a
//! cluster take it.
//!
//! - *bare*: the training graph on ONNX Runtime, again and again on one batch, with parameters, batch and
//!   gradients on the device. Nobody who trains can be faster: it has no optimizer, and nothing travels.
//! - each policy: Redis, an engine, a shard and one worker on the device, each a process of its own.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Serialize;
use syncline::{PolicySpec, Training};
use syncline_kit::Device;
use syncline_runtime::{ExecOptions, Runtime};
use syncline_workers::submit::{FieldChange, JobFile, JobGraph, PreparedJob, prepare};

use super::{cluster::BenchCluster, median, scaling, training_step::Step};
use crate::cli::{CliError, Failure, block_on, print, print_json, say};

/// Steps before the clock starts: the first ones choose kernels and allocate.
const WARM_STEPS: usize = 5;
/// Steps of a bare loop, and the time that they may take together.
const MOST_STEPS: usize = 200;
const MOST_BARE: Duration = Duration::from_secs(5);
/// Samples of the job are seen at least once, so that this many seconds may become more.
const DEFAULT_SECONDS: u32 = 8;

#[derive(Debug, clap::Args)]
pub(super) struct DeviceArgs {
    /// Job file; its training node is measured
    #[arg(value_name = "JOB.toml")]
    file: PathBuf,
    /// What to compute on: cpu, or cuda:0 for the first NVIDIA GPU
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
    /// Policies to try, with commas between them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "asp,bsp")]
    policies: Vec<PolicySpec>,
    /// Give a field of the file another value, as `submit --set` does. May be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Length of each run; an epoch is the least
    #[arg(long, value_name = "S", default_value_t = DEFAULT_SECONDS, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct DeviceMeasured {
    job: String,
    device: String,
    batch: u32,
    /// Time of one step of the bare loop.
    bare_ms: f64,
    bare_samples_per_s: f64,
    policies: Vec<DevicePolicyMeasured>,
}

#[derive(Debug, Serialize)]
struct DevicePolicyMeasured {
    policy: String,
    samples_per_s: f64,
    share_of_bare: f64,
    /// Processor time of each role for one step.
    cpu_ms: BTreeMap<&'static str, f64>,
}

pub(super) fn device(args: &DeviceArgs) -> Result<(), Failure> {
    let parts = syncline_kit::for_device(args.device, &say)?;
    let runtime = Runtime::load_for(args.device, &parts)?;
    let changes = args.changes.iter().map(|text| text.parse()).collect::<Result<Vec<FieldChange>, _>>()?;
    let mut graph = JobFile::load_with(&args.file, &changes)?;
    graph.trainings_mut().for_each(plain);
    let job = prepare(&runtime, &graph)?;
    let (_, train) = job.spec.train().ok_or_else(|| not_measured("the job trains nothing"))?;
    let (batch, samples) = (train.batch, train.data.train_samples.max(1));
    let bare_ms = bare_ms(&runtime, &job, args.device, batch)?;
    let bare_samples_per_s = f64::from(batch) * 1e3 / bare_ms;
    say(&format!("bare loop {bare_ms:.2} ms, {bare_samples_per_s:.0} samples/s"));
    let epochs = (bare_samples_per_s * f64::from(args.seconds) / samples as f64).ceil().max(1.0) as u32;
    // The gradients were compared a moment ago.
    graph.trainings_mut().for_each(|training| training.settings.check = false);
    let policies = block_on(policies(args, &runtime, &mut graph, epochs, bare_samples_per_s))?;
    let (job, device) = (job.spec.id.to_string(), args.device.to_string());
    let measured = DeviceMeasured { job, device, batch, bare_ms, bare_samples_per_s, policies };
    if args.json { print_json(&measured) } else { print(&describe(&measured)) }
}

/// One worker trains and nothing else, from the beginning: what else the job asks for is not measured here.
fn plain(training: &mut Training) {
    let Training { data, settings, .. } = training;
    (settings.min_workers, settings.max_workers, settings.queue_limit_s) = (1, None, None);
    (settings.checkpoint, settings.evaluate, settings.resume) = (None, None, None);
    // Nothing evaluates on them any more.
    (data.validation, data.validation_percent) = (None, None);
}

/// The median step of the bare loop. The session goes before anybody else needs the device's memory.
fn bare_ms(runtime: &Runtime, job: &PreparedJob, device: Device, batch: u32) -> Result<f64, Failure> {
    let tf32 = job.spec.train().is_some_and(|(_, train)| train.tf32);
    let options = ExecOptions { device, tf32, ..ExecOptions::default() };
    let run = || {
        let mut step = Step::with(runtime, job, batch as usize, &options)?;
        let warm = step.resident(WARM_STEPS)?;
        let last = warm.last().copied().unwrap_or_default().max(Duration::from_micros(1));
        let times = (MOST_BARE.as_secs_f64() / last.as_secs_f64()) as usize;
        step.resident(times.clamp(WARM_STEPS, MOST_STEPS) + 1)
    };
    let times = run().map_err(|error| not_measured(&format!("the bare loop cannot run: {error}")))?;
    // The first step of a loop brings the inputs.
    Ok(median(times.iter().skip(1).map(Duration::as_secs_f64)) * 1e3)
}

async fn policies(
    args: &DeviceArgs,
    runtime: &Runtime,
    graph: &mut JobGraph,
    epochs: u32,
    bare_samples_per_s: f64,
) -> Result<Vec<DevicePolicyMeasured>, Failure> {
    let cluster = BenchCluster::start_training_on(args.device).await?;
    let mut measured = Vec::with_capacity(args.policies.len());
    for (index, policy) in args.policies.iter().enumerate() {
        graph.id = format!("device-{index}");
        for training in graph.trainings_mut() {
            (training.settings.policy, training.settings.epochs) = (*policy, epochs);
        }
        let run = scaling::train(&cluster, prepare(runtime, graph)?).await?;
        let scaling::Run { samples_per_s, cpu_ms } = run;
        say(&format!("{policy} {samples_per_s:.0} samples/s"));
        let share_of_bare = samples_per_s / bare_samples_per_s;
        measured.push(DevicePolicyMeasured {
            policy: policy.to_string(),
            samples_per_s,
            share_of_bare,
            cpu_ms,
        });
    }
    Ok(measured)
}

fn describe(m: &DeviceMeasured) -> String {
    let DeviceMeasured { job, device, batch, bare_ms, bare_samples_per_s, policies } = m;
    let head = format!(
        "{job} on {device}, batch {batch}: bare loop {bare_ms:.2} ms a step, {bare_samples_per_s:.0} samples/s"
    );
    let line = |run: &DevicePolicyMeasured| {
        let cpu: Vec<String> = run.cpu_ms.iter().map(|(role, ms)| format!("{role} {ms:.3}")).collect();
        format!(
            "{:<20} {:>9.0} samples/s  {:>5.1} %   processor time per step: {} ms",
            run.policy,
            run.samples_per_s,
            100.0 * run.share_of_bare,
            cpu.join(", ")
        )
    };
    std::iter::once(head).chain(policies.iter().map(line)).collect::<Vec<_>>().join("\n")
}

fn not_measured(what: &str) -> Failure {
    CliError::Setting { what: what.to_owned() }.into()
}
