//! `syncline bench rows`: a step on a large table with Adam, of which the rows of a batch travel, beside one
//! that travels whole.

use std::time::Instant;

use serde::Serialize;
use syncline_ps::rows::RowSelection;
use syncline_scheduler::{
    samples::splitmix64,
    spec::{Layout, Optimizer, Parameter},
};

use super::{median, tensor_path::TensorPath};
use crate::cli::{Failure, print, print_json};

/// The first one touches memory that nobody has touched.
const WARM_ROUNDS: usize = 1;

#[derive(Debug, clap::Args)]
pub(super) struct RowsArgs {
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    rows: u32,
    /// Numbers in a row
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    width: u32,
    /// Samples of a step, of which each reads one row
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Measured steps of each kind
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct RowsMeasured {
    rows: u32,
    width: u32,
    batch: u32,
    rounds: u32,
    transport: String,
    kinds: Vec<RowsKind>,
}

#[derive(Debug, Serialize)]
struct RowsKind {
    travels: &'static str,
    push_bytes: u64,
    pull_bytes: u64,
    step_ms: f64,
    samples_per_s: f64,
}

pub(super) fn rows(args: &RowsArgs) -> Result<(), Failure> {
    let values = vec![0.1; args.rows as usize * args.width as usize];
    let shape = vec![u64::from(args.rows), u64::from(args.width)];
    let (by_rows, transport) = measure_rows(args, &values, Parameter::rows("w", shape.clone(), 0))?;
    let whole = measure_whole(args, &values, Parameter::trained("w", shape))?;
    let RowsArgs { rows, width, batch, rounds, .. } = *args;
    let measured = RowsMeasured { rows, width, batch, rounds, transport, kinds: vec![by_rows, whole] };
    if args.json { print_json(&measured) } else { print(&describe(&measured)) }
}

fn measure_rows(args: &RowsArgs, values: &[f32], table: Parameter) -> Result<(RowsKind, String), Failure> {
    let mut path = TensorPath::start_with(values, &Layout(vec![table]), Optimizer::adam())?;
    let mut seed = 1;
    let (mut times_ms, mut bytes) = (Vec::new(), (0, 0));
    for round in 0..args.rounds as usize + WARM_ROUNDS {
        let rows = batch(args, &mut seed);
        let mut pulled = vec![0.0; rows.count() * args.width as usize];
        let gradient = vec![0.01; pulled.len()];
        let since = Instant::now();
        path.pull_rows(&rows, &mut pulled)?;
        path.push_rows(&rows, &gradient)?;
        if round >= WARM_ROUNDS {
            times_ms.push(since.elapsed().as_secs_f64() * 1e3);
            let numbers = size_of_val(&pulled[..]) as u64;
            bytes = (rows.bytes() + numbers, numbers);
        }
    }
    Ok((kind(args, "rows", bytes, &times_ms), path.transport()))
}

fn measure_whole(args: &RowsArgs, values: &[f32], table: Parameter) -> Result<RowsKind, Failure> {
    let mut path = TensorPath::start_with(values, &Layout(vec![table]), Optimizer::adam())?;
    let (mut pulled, gradient) = (values.to_vec(), vec![0.01; values.len()]);
    let mut times_ms = Vec::new();
    for round in 0..args.rounds as usize + WARM_ROUNDS {
        let since = Instant::now();
        path.pull(&mut pulled)?;
        path.push(&[&gradient])?;
        if round >= WARM_ROUNDS {
            times_ms.push(since.elapsed().as_secs_f64() * 1e3);
        }
    }
    let numbers = size_of_val(values) as u64;
    Ok(kind(args, "whole", (numbers, numbers), &times_ms))
}

/// The rows that a batch of samples reads.
fn batch(args: &RowsArgs, seed: &mut u64) -> RowSelection {
    let draw = |_| (splitmix64(seed) % u64::from(args.rows)) as u32;
    let mut ids: Vec<u32> = (0..args.batch).map(draw).collect();
    ids.sort_unstable();
    ids.dedup();
    RowSelection::new(vec![ids]).unwrap_or_default()
}

fn kind(args: &RowsArgs, travels: &'static str, bytes: (u64, u64), times_ms: &[f64]) -> RowsKind {
    let step_ms = median(times_ms.iter().copied());
    let samples_per_s = f64::from(args.batch) / step_ms * 1e3;
    RowsKind { travels, push_bytes: bytes.0, pull_bytes: bytes.1, step_ms, samples_per_s }
}

fn describe(m: &RowsMeasured) -> String {
    let row = |kind: &RowsKind| {
        format!(
            "\n{:<8} {:>12} {:>12} {:>10.3} ms {:>12.0}",
            kind.travels, kind.push_bytes, kind.pull_bytes, kind.step_ms, kind.samples_per_s,
        )
    };
    let kinds: String = m.kinds.iter().map(row).collect();
    format!(
        "a table of {} x {} with Adam, {} samples a step over {}, medians of {} rounds\n\
         {:<8} {:>12} {:>12} {:>13} {:>12}{kinds}",
        m.rows,
        m.width,
        m.batch,
        m.transport,
        m.rounds,
        "travels",
        "bytes pushed",
        "pulled",
        "push and pull",
        "samples/s"
    )
}
