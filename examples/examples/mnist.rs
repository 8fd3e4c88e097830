//! Trains a perceptron or LeNet-5 on MNIST, on a cluster in this process.
//!
//! `cargo run --release -p syncline-examples --example mnist -- --help`

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use syncline_examples::{
    mnist::{self, Net},
    show::{self, Extent, Flags, Policy},
};

/// Trains a perceptron or LeNet-5 on MNIST, on a whole cluster in one process.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// When workers meet: bsp, asp, ssp:3, dssp:3:15, elastic-bsp:15, lb-bsp, elastic-lb, local-sgd:8,
    /// diloco:8 or auto.
    #[arg(long, default_value = "elastic-bsp")]
    policy: Policy,
    /// Folder with the files of MNIST; without it, a sample of 1,200 images that comes with the repository.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Net::Mlp)]
    model: Net,
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Least time of an iteration on a whole batch before slowdown, the rest slept after compute; 0: full
    /// speed.
    #[arg(long, default_value_t = 0)]
    step_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let extent = Extent { policy: args.policy, epochs: args.epochs, step_ms: args.step_ms };
    show::show(&format!("mnist-{}", args.model), &args.flags, &extent, |run| {
        let data = mnist::data(args.data.as_deref())?;
        Ok(mnist::job(run, args.model, data)?)
    })
}
