//! The step of a derived training graph (forward and backward), against PyTorch eager on the same machine and
//! threads, and the time that deriving takes.
//!
//! Everybody runs in turn in every round, and a ratio is the median over the rounds' own ratios: machines
//! differ from minute to minute. PyTorch runs in a process of its own (`training_step/peer.py`), which waits
//! while others run.
//!
//! `cargo bench -p syncline-workers --bench training_step -- --python PATH` with a Python that has torch,
//! onnx and onnxscript; without one, `--models FOLDER` names files that an earlier run has left.

#[path = "training_step/peer.rs"]
mod peer;
#[path = "training_step/step.rs"]
mod step;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use clap::Parser;
use peer::Peer;
use step::{Halves, Step};
use syncline_autodiff::{DeriveOptions, Loss, TrainingGraph, derive};
use syncline_runtime::Runtime;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Name of the file and batch of each model whose step is timed.
const STEPS: [(&str, usize); 4] = [("mlp", 128), ("transformer", 32), ("resnet20", 64), ("mobilenet", 64)];
/// Models that are only derived, with the aim in seconds.
const DERIVED: [(&str, f64); 2] = [("resnet50", 1.0), ("transformer100m", 3.0)];
/// How long one measurement of a round should take.
const ROUND_MS: f64 = 600.0;

/// Times the training graphs of a few models.
#[derive(Parser)]
#[command(name = "training_step")]
struct Flags {
    /// Python with torch, onnx and onnxscript, to compare with
    #[arg(long, env = "SYNCLINE_BENCH_PYTHON", value_name = "PATH")]
    python: Option<PathBuf>,
    /// Where the forward models are; missing ones are exported there
    #[arg(long, value_name = "FOLDER")]
    models: Option<PathBuf>,
    /// Only these models
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Numbers of threads to try
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Rounds of each comparison
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Outcome<()> {
    // `cargo test --all-targets` only wants to know that this compiles.
    if env::args().len() < 2 {
        return Ok(());
    }
    let flags = Flags::parse();
    let kept = tempfile::tempdir()?;
    let folder = flags.models.clone().unwrap_or_else(|| kept.path().to_owned());
    let mut torch = flags.python.as_deref().map(|python| Peer::start(python, &folder)).transpose()?;
    let runtime = Runtime::load(&syncline_kit::onnxruntime(&|line| eprintln!("{line}"))?.path)?;

    println!(
        "| model, batch | threads | syncline ms | two halves ms | torch ms | torch / syncline | torch / halves |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, batch) in STEPS.into_iter().filter(|(name, _)| flags.wants(name)) {
        let graph = derived(&runtime, &folder, name)?.0;
        for &threads in &flags.threads {
            compare(&runtime, &graph, (name, batch), threads, flags.rounds, torch.as_mut())?;
        }
    }
    println!("\n| model | parameters | derived in s, of so many | aim |\n|---|---|---|---|");
    for (name, aim) in DERIVED.into_iter().filter(|(name, _)| flags.wants(name)) {
        let mut seconds = Vec::new();
        let mut params = 0;
        for _ in 0..flags.rounds.min(3) {
            let (graph, took) = derived(&runtime, &folder, name)?;
            params = graph.params.iter().map(|param| param.initial.len()).sum();
            seconds.push(took);
        }
        println!("| {name} | {params} | {:.2}, {} | {aim} |", median(&mut seconds), seconds.len());
    }
    Ok(())
}

impl Flags {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// The training graph of a file, and the seconds that deriving it took.
fn derived(runtime: &Runtime, folder: &Path, name: &str) -> Outcome<(TrainingGraph, f64)> {
    let path = folder.join(format!("{name}.onnx"));
    let bytes =
        fs::read(&path).map_err(|error| format!("{}: {error}; give --python once", path.display()))?;
    let started = Instant::now();
    let graph = derive(runtime, &bytes, Loss::SoftmaxCrossEntropy, &DeriveOptions::default())?;
    Ok((graph, started.elapsed().as_secs_f64()))
}

/// Prints one line of the table.
fn compare(
    runtime: &Runtime,
    graph: &TrainingGraph,
    (name, batch): (&str, usize),
    threads: usize,
    rounds: usize,
    mut torch: Option<&mut Peer>,
) -> Outcome<()> {
    let mut whole = Step::new(runtime, graph, batch, threads)?;
    let mut halves = if threads == 2 { Some(Halves::new(runtime, graph, batch)?) } else { None };
    whole.run()?;
    let steps = (ROUND_MS / timed(3, || whole.run())?).clamp(3.0, 500.0) as usize;
    let mut ms: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        ms[0].push(timed(steps, || whole.run())?);
        if let Some(halves) = &mut halves {
            ms[1].push(timed(steps, || halves.run())?);
        }
        if let Some(torch) = &mut torch {
            ms[2].push(torch.step_ms(name, threads, steps)?);
        }
    }
    let ratio =
        |base: &[f64], other: &[f64]| -> Vec<f64> { base.iter().zip(other).map(|(b, o)| b / o).collect() };
    let mut cells = [ratio(&ms[2], &ms[0]), ratio(&ms[2], &ms[1])].map(|mut ratios| cell(&mut ratios));
    cells.iter_mut().filter(|cell| !cell.is_empty()).for_each(|cell| *cell = format!("**{cell}**"));
    let [whole, halves, torch] = ms.map(|mut ms| cell(&mut ms));
    println!("| {name}, {batch} | {threads} | {whole} | {halves} | {torch} | {} | {} |", cells[0], cells[1]);
    Ok(())
}

/// Median time of a step, in ms.
fn timed(steps: usize, mut step: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut ms = Vec::with_capacity(steps);
    for _ in 0..steps {
        let started = Instant::now();
        step()?;
        ms.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&mut ms))
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn cell(numbers: &mut [f64]) -> String {
    if numbers.is_empty() { String::new() } else { format!("{:.2}", median(numbers)) }
}
