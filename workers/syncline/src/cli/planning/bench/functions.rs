//! The worker of a measurement, and its functions.

use std::{path::Path, thread, time::Duration};

use syncline_scheduler::tasks::Bytes;
use syncline_workers::{functions::Function, worker::Worker};

use super::values::make;
use crate::cli::{ConnectionArgs, Failure, support::function_worker::run_functions};

/// How often a gate looks for its file.
const GATE_INTERVAL: Duration = Duration::from_millis(5);

/// Does nothing.
pub(super) const NOTHING: Function<(), ()> = Function::new("bench.nothing");
/// The next number.
pub(super) const NEXT: Function<(u64,), u64> = Function::new("bench.next");
/// The sum of numbers.
pub(super) const SUM: Function<(Vec<u64>,), u64> = Function::new("bench.sum");

/// Returns when there is this file.
pub(super) const GATE: Function<(String,), u64> = Function::new("bench.gate");
/// One more than the largest of numbers.
pub(super) const JOIN: Function<(Vec<u64>,), u64> = Function::new("bench.join");

/// So many bytes.
pub(super) const MAKE: Function<(u64, u64), Bytes> = Function::new("bench.make");
/// How many bytes these are.
pub(super) const LENGTH: Function<(Bytes,), u64> = Function::new("bench.length");

/// A worker that has the functions of this file, and does not train.
#[derive(Debug, clap::Args)]
pub struct BenchWorkerArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Its label `lane`
    #[arg(long)]
    lane: String,
    /// End when the pipe at stdin closes
    #[arg(long)]
    exit_with_parent: bool,
}

pub(crate) fn run_worker(args: BenchWorkerArgs) -> Result<(), Failure> {
    let worker = Worker::builder()
        .register(NOTHING, || {})
        .register(NEXT, |n: u64| n + 1)
        .register(SUM, |all: Vec<u64>| all.iter().sum::<u64>())
        .register(GATE, |file: String| {
            while !Path::new(&file).exists() {
                thread::sleep(GATE_INTERVAL);
            }
            0
        })
        .register(JOIN, |all: Vec<u64>| all.into_iter().max().unwrap_or(0) + 1)
        .register(MAKE, make)
        .register(LENGTH, |value: Bytes| value.len() as u64)
        .label("lane", args.lane);
    run_functions(worker, &args.connection, args.exit_with_parent)
}
