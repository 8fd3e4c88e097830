//! Trains ResNet-20 on CIFAR-10, on a cluster in this process.
//!
//! `cargo run --release -p syncline-examples --example cifar10 -- --help`

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use syncline_examples::{
    cifar10,
    show::{self, Extent, Flags, Policy},
};

/// Trains ResNet-20 on CIFAR-10, on a whole cluster in one process.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// When workers meet: bsp, asp, ssp:3, dssp:3:15, elastic-bsp:15, lb-bsp, elastic-lb, local-sgd:8,
    /// diloco:8 or auto.
    #[arg(long, default_value = "bsp")]
    policy: Policy,
    /// Folder with CIFAR-10 in its binary version; without it, a sample of 200 images that comes with the
    /// repository.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Least time of an iteration on a whole batch before slowdown, the rest slept after compute; 0: full
    /// speed.
    #[arg(long, default_value_t = 0)]
    step_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let extent = Extent { policy: args.policy, epochs: args.epochs, step_ms: args.step_ms };
    show::show("cifar10", &args.flags, &extent, |run| {
        let data = cifar10::data(args.data.as_deref())?;
        Ok(cifar10::job(run, data)?)
    })
}
