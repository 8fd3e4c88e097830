//! What the workers of a chaos run can do. Every function has a form without a cluster, so that its value can
//! be told in advance.

use std::{thread, time::Duration};

use syncline_scheduler::{samples::splitmix64, tasks::Bytes};
use syncline_workers::{
    functions::{ArgumentError, CallOptions, Context, Function, Next},
    worker::Worker,
};

use crate::cli::{ConnectionArgs, Failure, support::function_worker::run_functions};

/// A number made of a seed and others.
pub(super) const MIX: Function<(u64, Vec<u64>), u64> = Function::new("chaos.mix");
/// The same, at a later attempt: earlier ones fail or panic.
pub(super) const FLAKY: Function<(u64, u64), u64> = Function::new("chaos.flaky");
/// The same from a tree of tasks of this depth, which it adds.
pub(super) const GROW: Function<(u64, u32, u64), u64> = Function::new("chaos.grow");
/// More bytes than travel inline.
pub(super) const LARGE: Function<(u64, u64), Bytes> = Function::new("chaos.large");
/// A number made of bytes.
pub(super) const DIGEST: Function<(Bytes,), u64> = Function::new("chaos.digest");
/// The number of its attempt: what an earlier one gives must not count.
pub(super) const ATTEMPT: Function<(u64,), u64> = Function::new("chaos.attempt");

/// Most errors of one flaky task.
pub(super) const MAX_ERRORS: u16 = 2;

/// A worker that has the functions of this file, and does not train.
#[derive(Debug, clap::Args)]
pub struct ChaosWorkerArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// End when the pipe at stdin closes
    #[arg(long)]
    exit_with_parent: bool,
}

pub(crate) fn run_worker(args: ChaosWorkerArgs) -> Result<(), Failure> {
    let worker = Worker::builder()
        .register(MIX, |seed: u64, inputs: Vec<u64>| {
            pause(seed);
            mix(seed, &inputs)
        })
        .register(FLAKY, flaky)
        .register(GROW, grow)
        .register(ATTEMPT, |context: &Context, input: u64| {
            pause(input);
            u64::from(context.attempt())
        })
        .register(LARGE, |seed: u64, input: u64| Bytes::from(large(seed, input)))
        .register(DIGEST, |bytes: Bytes| digest(&bytes))
        .slots(2);
    run_functions(worker, &args.connection, args.exit_with_parent)
}

/// Some tasks take a moment, so that accidents meet them.
fn pause(seed: u64) {
    thread::sleep(Duration::from_millis(seed % 8));
}

fn flaky(context: &Context, seed: u64, input: u64) -> Result<u64, String> {
    pause(seed);
    // Attempts whose worker was lost count as well: fewer fail then.
    let errors = (seed % u64::from(MAX_ERRORS + 1)) as u16;
    if context.attempt() > errors {
        return Ok(mix(seed, &[input]));
    }
    assert!(seed & 8 == 0, "it panics at attempt {}", context.attempt());
    Err("it fails".to_owned())
}

fn grow(context: &Context, seed: u64, depth: u32, input: u64) -> Result<Next<u64>, ArgumentError> {
    pause(seed);
    if depth == 0 {
        return Ok(Next::Value(mix(seed, &[input])));
    }
    let options = durable();
    let halves = halves(seed).map(|half| context.call_with(&options, GROW, (half, depth - 1, input)));
    let [a, b] = halves;
    Ok(Next::Of(context.call_with(&options, MIX, (seed, &vec![a?, b?]))?))
}

/// Accidents of workers are many here, and no reason to give a task up.
pub(super) fn durable() -> CallOptions {
    CallOptions::new().crash_retries(10_000)
}

pub(super) fn mix(seed: u64, inputs: &[u64]) -> u64 {
    let step = |sum: u64, input: u64| splitmix64(&mut (sum ^ input));
    inputs.iter().fold(step(seed, 0), |sum, input| step(sum, *input))
}

fn halves(seed: u64) -> [u64; 2] {
    [1, 2].map(|half| mix(seed, &[half]))
}

/// What [`GROW`] gives.
pub(super) fn grown(seed: u64, depth: u32, input: u64) -> u64 {
    match depth {
        0 => mix(seed, &[input]),
        _ => mix(seed, &halves(seed).map(|half| grown(half, depth - 1, input))),
    }
}

/// 20 to 52 KiB.
pub(super) fn large(seed: u64, input: u64) -> Vec<u8> {
    let mut state = mix(seed, &[input]);
    let words = 2_560 + state % 4_096;
    (0..words).flat_map(|_| splitmix64(&mut state).to_le_bytes()).collect()
}

pub(super) fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|word| word.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)));
    words.fold(0, |sum, word| mix(sum, &[word]))
}
