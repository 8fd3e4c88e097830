//! One training step: the bare loop, the leanest loop over TCP, and Syncline, in turn, in one run.
//!
//! - *bare*: the step (MLP 784-512-256-10 on ONNX Runtime, one thread, no spinning) and SGD in place, no network.
//! - *lean*: the same step, the same bytes over one TCP connection to another process that applies the same optimizer.
//! - *tensor path*: the same over Syncline's own client and shard, without engine, Redis and worker.
//! - *syncline*: Redis, engine, shards and one worker as separate processes, policy ASP, at full speed.
//!
//! Machines differ from minute to minute: each round runs everybody in turn, and shares are medians over the rounds'
//! own ratios. `cargo bench -p syncline --bench step -- --help`

#[path = "step/cluster.rs"]
mod cluster;
#[path = "step/direct.rs"]
mod direct;
#[path = "step/lean.rs"]
mod lean;
#[path = "step/process.rs"]
mod process;
#[path = "step/report.rs"]
mod report;
#[path = "../src/cli/planning/bench/training_step.rs"]
mod training_step;
#[path = "step/work.rs"]
mod work;

use std::{process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Parser;
use cluster::Cluster;
use direct::Direct;
use lean::Lean;
use report::{Report, Round};
use syncline_ps::transport::Choice;
use syncline_runtime::Runtime;
use training_step::Step;
use work::Case;

const SMALL: Case = Case { name: "small", batch: 128, rows: 64 * 128, steps: 384, warm: 32 };
/// The same model with so large a batch that a step takes at least 100 ms.
const LARGE: Case = Case { name: "large", batch: 8192, rows: 2 * 8192, steps: 16, warm: 2 };

/// Compares the training step of Syncline with its physical limits.
#[derive(Parser)]
#[command(name = "step")]
struct Flags {
    /// Few rounds: for a look, not for figures
    #[arg(long, env = "SYNCLINE_BENCH_QUICK", value_parser = clap::builder::FalseyValueParser::new())]
    quick: bool,
    /// Rounds of the small step; the large one gets a third
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Only this case: small or large
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Numbers of shards to try
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    shards: Vec<usize>,
    /// How the tensor path and the worker reach the shards
    #[arg(long, value_name = "NAME", env = "SYNCLINE_TRANSPORT", default_value_t)]
    transport: Choice,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(process::LEAN) => return lean::run(),
        // `cargo test --all-targets` only wants to know that this compiles.
        None => return ExitCode::SUCCESS,
        Some(_) => {}
    }
    let flags = Flags::parse();
    match tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(compare(&flags)))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(flags: &Flags) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let runtime = Runtime::load(&syncline_kit::onnxruntime(&|line| eprintln!("{line}"))?.path)?;
    let mut clusters = Vec::new();
    for &shards in &flags.shards {
        clusters.push(Cluster::start(shards, flags.transport, dir.path()).await?);
    }
    let rounds = flags.rounds.unwrap_or(if flags.quick { 3 } else { 21 });
    let cases = [(SMALL, rounds), (LARGE, rounds.div_ceil(3))];
    let mut reports = Vec::new();
    for (case, rounds) in cases {
        if flags.only.as_deref().is_some_and(|only| only != case.name) {
            continue;
        }
        let data = work::write_data(&case, dir.path())?;
        let prepared = work::job(&runtime, "bare", &case, &data)?;
        let mut step = Step::new(&runtime, &prepared, case.batch).map_err(anyhow::Error::from_boxed)?;
        let mut lean = Lean::start(&step.values)?;
        let mut direct = Direct::start(dir.path(), &prepared, flags.transport).await?;
        let mut done = Vec::with_capacity(rounds);
        for number in 1..=rounds {
            let bare_ms = timed(&case, || step.bare().map_err(anyhow::Error::from_boxed))?;
            let lean_ms = timed(&case, || lean.step(&mut step))?;
            let direct_ms = timed(&case, || direct.step(&mut step))?;
            let mut syncline = Vec::with_capacity(clusters.len());
            for cluster in &mut clusters {
                syncline.push(cluster.train(&runtime, &case, &data).await?);
            }
            let steps: Vec<String> = syncline.iter().map(|s| format!("{:.3}", s.step_ms)).collect();
            let line = format!(
                "bare {bare_ms:.3}, lean {lean_ms:.3}, tensor path {direct_ms:.3}, syncline {}",
                steps.join(" and ")
            );
            eprintln!("{} {number}/{rounds}: {line} ms", case.name);
            done.push(Round { bare_ms, lean_ms, direct_ms, syncline });
        }
        reports.push(Report::new(&case, direct.transport(), &flags.shards, &done));
    }
    match flags.json {
        true => println!("{}", serde_json::to_string(&serde_json::json!({ "step": reports }))?),
        false => reports.iter().for_each(Report::print),
    }
    Ok(())
}

/// Mean time of one step behind the warm-up, in ms.
fn timed(case: &Case, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..case.warm {
        step()?;
    }
    // Half as many as the cluster counts: the same length of time.
    let steps = case.steps / 2;
    let started = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e3 / steps as f64)
}
