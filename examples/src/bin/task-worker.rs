//! The worker for the examples of general tasks: it has the functions that their graphs call.
//!
//! `cargo run --release -p syncline-examples --bin task-worker`, once per machine or more often; `syncline up
//! --workers 0` starts the rest.

use std::process::ExitCode;

use syncline::worker::Worker;
use syncline_examples::{integral, sweep, words};

fn main() -> ExitCode {
    Worker::builder()
        .register(words::COUNT, words::count)
        .register(words::ADD_UP, words::add_up)
        .register(integral::INTEGRATE, integral::integrate)
        .register(integral::ADD, integral::add)
        .register(sweep::TRIAL, sweep::trial)
        .register(sweep::HALVE, sweep::halve)
        .main()
}
