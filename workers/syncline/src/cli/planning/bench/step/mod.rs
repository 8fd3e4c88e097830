//! `syncline bench step`: one training step as the bare loop, the leanest loop over TCP, and Syncline take
//! it, in turn.
//!
//! - *bare*: the step (MLP 784-512-256-10 on ONNX Runtime, one thread, no spinning) and SGD in place, no
//!   network.
//! - *lean*: the same step, the same bytes over one TCP connection to a peer that applies the same optimizer.
//! - *tensor path*: the same over Syncline's own client and shard, without engine, Redis and worker.
//! - *syncline*: Redis, engine, shards and one worker as separate processes, policy ASP, at full speed.
//!
//! Machines differ from minute to minute: each round runs everybody in turn, and shares are medians over the
//! rounds' own ratios.

mod lean;
mod report;
mod syncline;

use std::{error::Error, time::Instant};

use serde::Serialize;
use syncline_ps::transport::TransportChoice;
use syncline_runtime::Runtime;
use syncline_workers::submit::SubmitError;

use self::{
    lean::LeanStep,
    report::{Report, Round},
};
use super::{
    cluster::{BenchCluster, Shards},
    model::BenchModel,
    tensor_path::TensorPath,
    training_step::Step,
};
use crate::cli::{CliError, Failure, block_on, print, print_json, say};

/// One size of step.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    batch: u32,
    /// Training samples; a multiple of the batch.
    rows: u32,
    /// Steps of one measurement.
    steps: u32,
    /// Steps before the clock starts.
    warm: u32,
}

const SMALL: Case = Case { name: "small", batch: 128, rows: 64 * 128, steps: 384, warm: 32 };
/// The same model with so large a batch that a step takes at least 100 ms.
const LARGE: Case = Case { name: "large", batch: 8192, rows: 2 * 8192, steps: 16, warm: 2 };

#[derive(Debug, clap::Args)]
pub(super) struct StepArgs {
    /// Rounds of the small step; the large one gets a third
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Only this case
    #[arg(long, value_name = "NAME", value_parser = ["small", "large"])]
    only: Option<String>,
    /// Numbers of shards to try
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Vec<u32>,
    /// How the tensor path and the worker reach the shards
    #[arg(long, value_name = "NAME", env = "SYNCLINE_TRANSPORT", default_value_t)]
    transport: TransportChoice,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct StepMeasured {
    step: Vec<Report>,
}

pub(super) fn step(args: &StepArgs) -> Result<(), Failure> {
    let runtime = Runtime::load(&syncline_kit::onnxruntime(&say)?.path)?;
    let mut clusters = Vec::with_capacity(args.shards.len());
    for &shards in &args.shards {
        clusters.push(block_on(BenchCluster::start_training(
            &[1.0],
            args.transport,
            Shards { count: shards, replicas: 1 },
        ))?);
    }
    let cases = [(SMALL, args.rounds), (LARGE, args.rounds.div_ceil(3))];
    let wanted = |case: &Case| args.only.as_deref().is_none_or(|only| only == case.name);
    let cases = cases.iter().filter(|(case, _)| wanted(case));
    let step = cases.map(|(case, rounds)| compare(args, &runtime, &clusters, case, *rounds));
    let step = step.collect::<Result<Vec<Report>, Failure>>()?;
    if args.json {
        return print_json(&StepMeasured { step });
    }
    print(&step.iter().map(Report::table).collect::<Vec<_>>().join("\n\n"))
}

fn compare(
    args: &StepArgs,
    runtime: &Runtime,
    clusters: &[BenchCluster],
    case: &Case,
    rounds: u32,
) -> Result<Report, Failure> {
    let cannot_use = |source| CliError::Path { path: std::env::temp_dir(), source };
    let folder = tempfile::tempdir().map_err(cannot_use)?;
    let data = BenchModel::Mlp.write_data(folder.path(), case.rows).map_err(cannot_use)?;
    let job = |id: &str| -> Result<_, SubmitError> {
        BenchModel::Mlp.job(runtime, id, &data, |settings| {
            settings.batch = case.batch;
            settings.epochs = case.steps.div_ceil(case.rows / case.batch);
        })
    };
    let mut step = Step::new(runtime, &job("bare")?, case.batch as usize).map_err(cannot_run)?;
    let mut lean = LeanStep::start(step.values.clone()).map_err(|error| cannot_run(error.into()))?;
    let mut tensor_path = TensorPath::start(&step.values, args.transport)?;
    let mut done = Vec::with_capacity(rounds as usize);
    for number in 1..=rounds {
        let bare_ms = timed(case, || step.bare())?;
        let lean_ms = timed(case, || Ok(step.run(|values, gradients| lean.exchange(gradients, values))??))?;
        let exchange = |values: &mut [f32], gradients: &[&[f32]]| tensor_path.exchange(gradients, values);
        let mut exchange = exchange;
        let direct_ms = timed(case, || Ok(step.run(|values, gradients| exchange(values, gradients))??))?;
        let mut syncline = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            let job = job(&format!("{}-{number}", case.name))?;
            syncline.push(block_on(syncline::train(cluster, case, job))?);
        }
        let steps: Vec<String> = syncline.iter().map(|sample| format!("{:.3}", sample.step_ms)).collect();
        say(&format!(
            "{} {number}/{rounds}: bare {bare_ms:.3}, lean {lean_ms:.3}, tensor path {direct_ms:.3}, syncline {} ms",
            case.name,
            steps.join(" and ")
        ));
        done.push(Round { bare_ms, lean_ms, direct_ms, syncline });
    }
    Ok(Report::new(case, tensor_path.transport(), &args.shards, &done))
}

/// Mean time of one step behind the warm-up, in ms.
fn timed(
    case: &Case,
    mut step: impl FnMut() -> Result<(), Box<dyn Error + Send + Sync>>,
) -> Result<f64, Failure> {
    (0..case.warm).try_for_each(|_| step()).map_err(cannot_run)?;
    // Half as many as the cluster counts: the same length of time.
    let steps = case.steps / 2;
    let since = Instant::now();
    (0..steps).try_for_each(|_| step()).map_err(cannot_run)?;
    Ok(since.elapsed().as_secs_f64() * 1e3 / f64::from(steps))
}

fn cannot_run(error: Box<dyn Error + Send + Sync>) -> Failure {
    CliError::Setting { what: format!("the step cannot run: {error}") }.into()
}
