//! The binary `syncline` under another name: a test can start a program of its own package only.

use std::process::ExitCode;

fn main() -> ExitCode {
    syncline::run_command_line()
}
