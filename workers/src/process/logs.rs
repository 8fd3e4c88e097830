//! Logs to stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    prelude::*,
};

/// Starts logging of a process that serves others, at level `info`.
pub fn log_as_service() {
    start_from(LevelFilter::INFO);
}

/// Starts logging of a command that a person typed: only what went wrong.
pub fn log_as_command() {
    start_from(LevelFilter::WARN);
}

/// From this level on, without tarpc: connections that break and calls that take too long are told in our own words.
fn start_from(level: LevelFilter) {
    start(Targets::new().with_default(level).with_target("tarpc", LevelFilter::OFF));
}

/// `SYNCLINE_LOG`, else `RUST_LOG`, else `levels`.
fn start(levels: Targets) {
    let from = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    let wanted = from("SYNCLINE_LOG").or_else(|| from("RUST_LOG"));
    let filter = wanted.and_then(|w| w.parse().ok()).unwrap_or(levels);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // Somebody who embeds us may have set up logging before.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
}
