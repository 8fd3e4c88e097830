//! Logs to stderr.

use std::{
    env,
    io::{self, IsTerminal},
};

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

/// From this level on, without tarpc: connections that break and calls that take too long are told in our own
/// words.
fn start_from(level: LevelFilter) {
    start(Targets::new().with_default(level).with_target("tarpc", LevelFilter::OFF));
}

/// `SYNCLINE_LOG`, else `RUST_LOG`, else `levels`.
fn start(levels: Targets) {
    let from = |name| env::var(name).ok().filter(|v| !v.is_empty());
    let ours = from("SYNCLINE_LOG").map(|wanted| levels_of(&wanted));
    let (wanted, fault) = match ours {
        Some(Ok(levels)) => (Some(levels), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (from("RUST_LOG").and_then(|wanted| wanted.parse().ok()), None),
    };
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // Somebody who embeds us may have set up logging before.
    let _ = tracing_subscriber::registry().with(lines).with(wanted.unwrap_or(levels)).try_init();
    if let Some(fault) = fault {
        tracing::warn!("SYNCLINE_LOG is left aside: {fault}");
    }
}

/// A word alone has to be a level. What else takes it for a part of a program that logs everything, and a
/// misspelt level would turn off all the rest.
fn levels_of(wanted: &str) -> Result<Targets, String> {
    let words = wanted.split(',').map(str::trim).filter(|part| !part.contains('='));
    for word in words {
        if word.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "`{word}` is no level: those are off, error, warn, info, debug and trace, of one part `syncline_engine=debug`"
            ));
        }
    }
    wanted.parse().map_err(|fault| format!("`{wanted}`: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_with_those_that_are() {
        for wanted in ["debug", "WARN", "off", "info,tarpc=off", "syncline_engine=debug, warn"] {
            levels_of(wanted).unwrap();
        }
        for (wanted, named) in [
            ("verbose", "`verbose` is no level"),
            ("info,tarpc", "`tarpc` is no level"),
            ("tarpc=loud", "`tarpc=loud`: "),
        ] {
            let fault = levels_of(wanted).unwrap_err();
            assert!(fault.contains(named), "{fault}");
        }
    }
}
