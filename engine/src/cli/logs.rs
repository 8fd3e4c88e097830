//! Logs to stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// `SYNCLINE_LOG`, else `RUST_LOG`, else `level`.
pub(super) fn start(level: &str) {
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
