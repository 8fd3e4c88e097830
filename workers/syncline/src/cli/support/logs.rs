//! Logs to stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Starts logging of a process that serves others, at level `info`.
pub(crate) fn log_as_service() {
    // tarpc opens a span for every call.
    start("info,tarpc=warn");
}

/// Starts logging of a command that a person typed: only what went wrong.
pub(crate) fn log_as_command() {
    start("warn");
}

/// `SYNCLINE_LOG`, else `RUST_LOG`, else `level`.
fn start(level: &str) {
    let from = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    let wanted = from("SYNCLINE_LOG").or_else(|| from("RUST_LOG"));
    let filter = wanted.and_then(|w| EnvFilter::try_new(w).ok()).unwrap_or_else(|| EnvFilter::new(level));
    // Somebody who embeds us may have set up logging before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
}
