//! `syncline bench plan`: how long it takes to find where workers meet.

use std::{hint::black_box, time::Instant};

use serde::Serialize;
use syncline_scheduler::sync::search::{Algorithm, papers_rows, search};

use crate::cli::{CliError, Failure, planning::plan::MAX_POINTS, print, print_json};

#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Iterations predicted per worker
    #[arg(long, value_name = "R", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..))]
    lookahead: u32,
    /// How to search: default, zipline, zipline-opt, zipline-opt-bs, heap, grid-scan, full-grid-scan
    #[arg(long, value_name = "NAME", default_value_t)]
    algorithm: Algorithm,
    /// Measured runs, after one that is not measured
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Where the random speeds begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Measured {
    workers: u32,
    lookahead: u32,
    algorithm: Algorithm,
    median_us: f64,
    min_us: f64,
    max_us: f64,
    runs: u32,
}

pub(super) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let PlanArgs { workers, lookahead, algorithm, runs, seed, json } = *args;
    if u64::from(workers) * u64::from(lookahead) > MAX_POINTS {
        let what =
            format!("{workers} workers with {lookahead} points each are more than {MAX_POINTS} points");
        return Err(CliError::Setting { what }.into());
    }
    let rows = papers_rows(workers, lookahead, seed);
    let search = || search(algorithm, black_box(&rows));
    black_box(search());
    let mut times_us: Vec<f64> = (0..runs).map(|_| time_us(search)).collect();
    times_us.sort_unstable_by(f64::total_cmp);
    let at = |i: usize| times_us.get(i).copied().unwrap_or_default();
    let last = times_us.len() - 1;
    let measured = Measured {
        workers,
        lookahead,
        algorithm,
        median_us: (at(last / 2) + at(times_us.len() / 2)) / 2.0,
        min_us: at(0),
        max_us: at(last),
        runs,
    };
    if json { print_json(&measured) } else { print(&describe(&measured)) }
}

fn time_us<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_nanos() as f64 / 1e3
}

fn describe(m: &Measured) -> String {
    format!(
        "{} workers, {} iterations ahead, {}: median {:.1} µs (from {:.1} to {:.1}, {} runs)",
        m.workers, m.lookahead, m.algorithm, m.median_us, m.min_us, m.max_us, m.runs
    )
}
