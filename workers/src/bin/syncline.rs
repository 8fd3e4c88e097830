//! The one binary of Syncline: every crate brings its own subcommands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use syncline_engine::cli::{self as engine, Failure};
use syncline_ps::cli as ps;
use syncline_workers::{apart::serve_if_asked, cli as workers};

/// Trains models on many machines, without waiting for the slow ones.
///
/// Exit codes: 0 ok, 1 the job failed or the engine refused, 2 usage, 3 engine or shard unreachable, 4 Redis, 5 internal.
#[derive(Debug, Parser)]
#[command(name = "syncline", version)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Engine(engine::Command),
    /// Run one shard of the parameter server
    Ps(ps::PsArgs),
    #[command(flatten)]
    Workers(workers::Command),
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Engine(command) => command.run(),
            Self::Ps(args) => {
                engine::log_as_service();
                ps::run(&args).map_err(workers::ps_failure)
            }
            Self::Workers(command) => command.run(),
        }
    }
}

fn main() -> ExitCode {
    if let Some(ended) = serve_if_asked() {
        return ended;
    }
    let json = engine::json_asked(std::env::args_os());
    match Line::try_parse() {
        Ok(line) => engine::finish(line.command.run(), json),
        Err(error) => engine::refuse_usage(&error, json),
    }
}
