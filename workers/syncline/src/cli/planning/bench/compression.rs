//! `syncline bench compression`: what a push takes over a slow link, in each way in which a gradient may
//! travel.

use std::time::Instant;

use serde::Serialize;
use syncline_scheduler::{
    samples::splitmix64,
    spec::{Compression, PullCompression},
};

use super::{median, tensor_path::TensorPath};
use crate::cli::{Failure, print, print_json};

/// The first one touches memory that nobody has touched.
const WARM_ROUNDS: usize = 1;
/// Pushes after which `auto` has decided.
const TRIAL_PUSHES: usize = 20;
const ALL: &str = "none,bf16,fp16,int8,top-k:0.1,top-k:0.01,auto";

#[derive(Debug, clap::Args)]
pub(super) struct CompressionArgs {
    /// Speed of the link between worker and shard, each way, in units of 1,000,000 bits per second; without
    /// it, the machine's
    #[arg(long, value_name = "MBIT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    link_mbit: Option<u32>,
    /// How gradients travel: none, bf16, fp16, int8, top-k:SHARE, auto
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = ALL, value_parser = one)]
    compression: Vec<Compression>,
    /// Size of the gradient, in units of 1,000,000 bytes
    #[arg(long, value_name = "MB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    mb: u32,
    /// Measured steps of each, in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// How the parameters travel: none, bf16, fp16
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = pulls)]
    pulls: PullCompression,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn pulls(text: &str) -> Result<PullCompression, String> {
    match text {
        "none" => Ok(PullCompression::None),
        "bf16" => Ok(PullCompression::Bf16),
        "fp16" => Ok(PullCompression::Fp16),
        _ => Err("name one of none, bf16 and fp16".into()),
    }
}

fn one(text: &str) -> Result<Compression, String> {
    let share = text.strip_prefix("top-k:").map(|share| share.parse::<f32>());
    match (text, share) {
        ("none", _) => Ok(Compression::None),
        ("bf16", _) => Ok(Compression::Bf16),
        ("fp16", _) => Ok(Compression::Fp16),
        ("int8", _) => Ok(Compression::Int8),
        ("auto", _) => Ok(Compression::Auto),
        (_, Some(Ok(share))) if share > 0.0 && share <= 0.5 => Ok(Compression::TopK(share)),
        _ => {
            Err("name one of none, bf16, fp16, int8, auto and top-k:SHARE, such as top-k:0.01, up to 0.5"
                .into())
        }
    }
}

#[derive(Debug, Serialize)]
struct CompressionMeasured {
    link_mbit: Option<u32>,
    mb: u32,
    rounds: u32,
    pulls: String,
    kinds: Vec<CompressionKind>,
}

#[derive(Debug, Serialize)]
struct CompressionKind {
    compression: String,
    bytes: u64,
    push_ms: f64,
    step_ms: f64,
}

/// One way for gradients, with a worker and a shard of its own.
struct CompressionRun {
    compression: Compression,
    path: TensorPath,
    bytes: u64,
    /// Of each push, and of push and pull together.
    times_ms: Vec<(f64, f64)>,
}

pub(super) fn compression(args: &CompressionArgs) -> Result<(), Failure> {
    let elements = args.mb as usize * 1_000_000 / size_of::<f32>();
    let mut values = vec![0.0; elements];
    let gradient = noise(elements);
    let lane = |compression: &Compression| -> Result<CompressionRun, Failure> {
        let mut path = TensorPath::start_over_link(&values, args.link_mbit, *compression, args.pulls)?;
        let tried = if *compression == Compression::Auto { TRIAL_PUSHES } else { 0 };
        (0..tried).try_for_each(|_| path.push(&[&gradient]).map(drop))?;
        Ok(CompressionRun { compression: *compression, path, bytes: 0, times_ms: Vec::new() })
    };
    let mut lanes = args.compression.iter().map(lane).collect::<Result<Vec<_>, _>>()?;
    for round in 0..args.rounds as usize + WARM_ROUNDS {
        for lane in &mut lanes {
            let (since, before) = (Instant::now(), lane.path.sent_bytes());
            lane.path.push(&[&gradient])?;
            let push_ms = since.elapsed().as_secs_f64() * 1e3;
            lane.bytes = lane.path.sent_bytes() - before;
            lane.path.pull(&mut values)?;
            if round >= WARM_ROUNDS {
                lane.times_ms.push((push_ms, since.elapsed().as_secs_f64() * 1e3));
            }
        }
    }
    let kind = |lane: &CompressionRun| CompressionKind {
        compression: lane.compression.to_string(),
        bytes: lane.bytes,
        push_ms: median(lane.times_ms.iter().map(|(push, _)| *push)),
        step_ms: median(lane.times_ms.iter().map(|(_, step)| *step)),
    };
    let kinds = lanes.iter().map(kind).collect();
    let CompressionArgs { link_mbit, mb, rounds, .. } = *args;
    let measured = CompressionMeasured { link_mbit, mb, rounds, pulls: args.pulls.to_string(), kinds };
    if args.json { print_json(&measured) } else { print(&describe(&measured)) }
}

/// Numbers around zero, the same in every run.
fn noise(elements: usize) -> Vec<f32> {
    let mut seed = 1;
    let mut draw = || (splitmix64(&mut seed) >> 40) as f32 / (1 << 24) as f32 - 0.5;
    (0..elements).map(|_| (draw() + draw() + draw()) * 1e-2).collect()
}

fn describe(m: &CompressionMeasured) -> String {
    let link = m.link_mbit.map_or("without a limit".into(), |mbit| format!("{mbit} Mbit/s each way"));
    let plain = m.kinds.first().map_or(f64::NAN, |kind| kind.push_ms);
    let row = |kind: &CompressionKind| {
        format!(
            "\n{:<12} {:>8.3} MB {:>9.1} ms {:>7.1} x {:>9.1} ms",
            kind.compression,
            kind.bytes as f64 / 1e6,
            kind.push_ms,
            plain / kind.push_ms,
            kind.step_ms,
        )
    };
    let rows: String = m.kinds.iter().map(row).collect();
    format!(
        "a gradient of {} MB over a link {link}, medians of {} rounds in turn\n\
         {:<12} {:>11} {:>12} {:>9} {:>12}{rows}",
        m.mb, m.rounds, "compression", "sent", "push", "faster", "and pull"
    )
}
