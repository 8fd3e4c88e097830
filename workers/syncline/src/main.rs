//! The binary `syncline`: every part of a cluster, and every command that a person types.

use std::process::ExitCode;

use clap::Parser;
use syncline_workers::isolation::serve_if_asked;

mod cli;

/// Trains models on many machines, without waiting for the slow ones.
///
/// Exit codes: 0 ok, 1 the job failed or the engine refused, 2 usage, 3 engine or shard unreachable, 4 Redis, 5 internal.
#[derive(Debug, Parser)]
#[command(name = "syncline", version)]
struct Line {
    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    if let Some(ended) = serve_if_asked() {
        return ended;
    }
    let json = cli::json_asked(std::env::args_os());
    match Line::try_parse() {
        Ok(line) => cli::finish(line.command.run(), json),
        Err(error) => cli::refuse_usage(&error, json),
    }
}
