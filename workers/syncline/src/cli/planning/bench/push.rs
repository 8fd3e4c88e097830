//! `syncline bench push`: how fast gradients reach the parameters, beside the leanest loop that does the same
//! work.

use std::time::Instant;

use serde::Serialize;
use syncline_ps::transport::{Transport, TransportChoice};

use super::{lean::Lean, median, tensor_path::TensorPath};
use crate::cli::{CliError, Failure, print, print_json};

/// The first ones touch memory that nobody has touched.
const WARM_ROUNDS: usize = 3;
/// Parameters of a small perceptron.
const SMALL_ELEMENTS: usize = 4_810;
const SMALL_STEPS: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct PushArgs {
    /// How worker and shard are connected: shm, unix or tcp
    #[arg(long, value_name = "NAME", default_value = "shm", value_parser = one_transport)]
    transport: Transport,
    /// Size of the gradient, in units of 1,000,000 bytes
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    mb: u32,
    /// Measured pushes, each with the lean loop beside it
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn one_transport(text: &str) -> Result<Transport, String> {
    match text.parse::<TransportChoice>().map_err(|error| error.to_string())? {
        TransportChoice::Only(transport) => Ok(transport),
        TransportChoice::Auto => Err("name one of shm, unix and tcp".into()),
    }
}

#[derive(Debug, Serialize)]
struct PushMeasured {
    transport: String,
    mb: u32,
    rounds: u32,
    gb_per_s: f64,
    lean_gb_per_s: f64,
    share_of_lean: f64,
    small_step_us: f64,
}

pub(super) fn push(args: &PushArgs) -> Result<(), Failure> {
    let PushArgs { transport, mb, rounds, json } = *args;
    let elements = mb as usize * 1_000_000 / size_of::<f32>();
    let gradient = vec![1e-3; elements];
    let setting = |source| CliError::Setting { what: format!("the lean loop does not start: {source}") };
    let mut lean = Lean::start(transport, elements).map_err(setting)?;
    let only = TransportChoice::Only(transport);
    let mut ours = TensorPath::start_in_place(&vec![0.0; elements], only, gradient.clone())?;
    let mut times = Vec::with_capacity(rounds as usize);
    for round in 0..rounds as usize + WARM_ROUNDS {
        let since = Instant::now();
        lean.push(&gradient).map_err(setting)?;
        let lean_s = since.elapsed().as_secs_f64();
        let since = Instant::now();
        ours.push_placed()?;
        if round >= WARM_ROUNDS {
            times.push((lean_s, since.elapsed().as_secs_f64()));
        }
    }
    drop((lean, ours));
    let gb_per_s = |seconds: f64| f64::from(mb) / 1e3 / seconds;
    let measured = PushMeasured {
        transport: transport.to_string(),
        mb,
        rounds,
        gb_per_s: gb_per_s(median(times.iter().map(|(_, ours)| *ours))),
        lean_gb_per_s: gb_per_s(median(times.iter().map(|(lean, _)| *lean))),
        share_of_lean: median(times.iter().map(|(lean, ours)| lean / ours)),
        small_step_us: small_step_us(transport)?,
    };
    if json { print_json(&measured) } else { print(&describe(&measured)) }
}

fn describe(m: &PushMeasured) -> String {
    format!(
        "push and apply {} MB by {}: {:.2} GB/s, the lean loop {:.2} GB/s; {:.1} % of it (medians of {} rounds in turn)\n\
         push and pull of {} kB: {:.0} µs",
        m.mb,
        m.transport,
        m.gb_per_s,
        m.lean_gb_per_s,
        100.0 * m.share_of_lean,
        m.rounds,
        SMALL_ELEMENTS * size_of::<f32>() / 1_000,
        m.small_step_us,
    )
}

/// What a small model feels: round trips, not bandwidth.
fn small_step_us(transport: Transport) -> Result<f64, Failure> {
    let (gradient, mut values) = (vec![1e-3; SMALL_ELEMENTS], vec![0.0; SMALL_ELEMENTS]);
    let mut ours = TensorPath::start(&values, TransportChoice::Only(transport))?;
    let mut times_us = Vec::with_capacity(SMALL_STEPS);
    for _ in 0..SMALL_STEPS {
        let since = Instant::now();
        ours.push(&[&gradient])?;
        ours.pull(&mut values)?;
        times_us.push(since.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(median(times_us.into_iter()))
}
