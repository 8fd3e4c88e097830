//! Trains a classifier of handwritten digits on a cluster in this process: Redis, engine, two parameter
//! shards, four workers, one of them slower.
//!
//! `cargo run --release -p syncline-examples --example digits -- --help`

use std::process::ExitCode;

use clap::Parser;
use syncline_examples::{
    digits,
    show::{self, Extent, Flags, Policy},
};

/// Trains a classifier of handwritten digits on a whole cluster in one process.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// When workers meet: bsp, asp, ssp:3, dssp:3:15, elastic-bsp:15, lb-bsp, elastic-lb, local-sgd:8,
    /// diloco:8 or auto.
    #[arg(long, default_value = "elastic-bsp")]
    policy: Policy,
    #[arg(long, default_value_t = digits::EPOCHS, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Least time of an iteration on a whole batch before slowdown, the rest slept after compute; 0: full
    /// speed.
    #[arg(long, default_value_t = 10)]
    step_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let extent = Extent { policy: args.policy, epochs: args.epochs, step_ms: args.step_ms };
    show::show("digits", &args.flags, &extent, |run| Ok(digits::job(run)))
}
