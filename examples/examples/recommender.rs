//! Learns who likes what, on a cluster in this process. Only the rows of a batch travel.
//!
//! `cargo run --release -p syncline-examples --example recommender -- --help`

use std::process::ExitCode;

use clap::Parser;
use syncline_examples::{
    recommender,
    show::{self, Extent, Flags, Policy},
};

/// Learns who likes what from made-up ratings, on a whole cluster in one process.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// When workers meet: bsp, asp, ssp:3, dssp:3:15, elastic-bsp:15, lb-bsp, elastic-lb or auto.
    #[arg(long, default_value = "asp")]
    policy: Policy,
    #[arg(long, default_value_t = recommender::EPOCHS, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Least time of an iteration on a whole batch before slowdown, the rest slept after compute; 0: full
    /// speed.
    #[arg(long, default_value_t = 0)]
    step_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let extent = Extent { policy: args.policy, epochs: args.epochs, step_ms: args.step_ms };
    let ratings = std::env::temp_dir().join(format!("syncline-ratings-{}.safetensors", std::process::id()));
    let code = show::show("recommender", &args.flags, &extent, |run| {
        Ok(recommender::job(run, recommender::data(&ratings)?))
    });
    // What is left behind is a small file in the folder for such.
    let _ = std::fs::remove_file(&ratings);
    code
}
