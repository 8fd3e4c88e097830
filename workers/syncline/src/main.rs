//! The binary `syncline`: every part of a cluster, and every command that a person types.

use std::process::ExitCode;

fn main() -> ExitCode {
    syncline::run_command_line()
}
