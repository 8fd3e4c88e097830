//! The binary `syncline`: every part of a cluster, and every command that a person types.

use std::{env, ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser};
use syncline_workers::{
    isolation::serve_if_asked,
    process::{open_as_many_files_as_allowed, outlive_file_size_limit},
};

mod cli;

/// Trains models on many machines, without waiting for the slow ones.
///
/// Exit codes: 0 ok, 1 the job failed or the engine refused, 2 usage, 3 engine or shard unreachable, 4 Redis,
/// 5 anything else, 130 stopped by Ctrl-C or SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "syncline", version, long_version = cli::LONG_VERSION.as_str())]
struct Line {
    #[command(subcommand)]
    command: cli::Command,
}

/// Turned off when ONNX Runtime is loaded, its telemetry sends nothing. Without this variable it still
/// collects, in a file of the user's cache.
const DISABLE_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

/// Variables of ours that are empty count as not set, here and in every process that we start.
fn unset_empty_variables() {
    let ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("SYNCLINE_"));
    let empty = env::vars_os().filter(|(name, value)| value.is_empty() && ours(name));
    for (name, _) in empty.collect::<Vec<_>>() {
        // SAFETY: no other thread is there yet that could read the environment.
        #[expect(
            unsafe_code,
            reason = "options are read from the environment, where empty ones are values, too"
        )]
        unsafe {
            env::remove_var(name);
        }
    }
}

fn main() -> ExitCode {
    if env::var_os(DISABLE_TELEMETRY).is_none() {
        // SAFETY: no other thread is there yet that could read the environment.
        #[expect(unsafe_code, reason = "there is no other way to tell a library that is loaded later")]
        unsafe {
            env::set_var(DISABLE_TELEMETRY, "1");
        }
    }
    unset_empty_variables();
    outlive_file_size_limit();
    open_as_many_files_as_allowed();
    if let Some(ended) = serve_if_asked() {
        return ended;
    }
    let json = cli::json_asked(env::args_os());
    match Line::try_parse() {
        Ok(line) => cli::finish(line.command.run(), json),
        Err(error) => cli::refuse_usage(error, Line::command(), env::args_os().skip(1), json),
    }
    .into()
}
