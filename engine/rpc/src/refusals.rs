//! Logs callers that were refused, such as those with a wrong token file, at a bounded rate.

use std::{
    fmt, io,
    sync::Mutex,
    time::{Duration, Instant},
};

use tracing::{debug, warn};

use super::{hello::HelloError, log_limit::LogLimit, open_files::NoDescriptor, threads::lock};

/// At most one line in this time: a stranger must not be able to fill the disk.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What one listener has refused recently.
#[derive(Debug)]
pub struct Refusals(Mutex<LogLimit>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(LogLimit::new(LOG_INTERVAL)))
    }
}

impl Refusals {
    /// Logs the refusal of a caller, or counts it for the next line. What the caller sent is never repeated.
    pub fn log(&self, peer: impl fmt::Display, error: &HelloError) {
        if matches!(error, HelloError::Io(_)) {
            // A probe of the open port, such as a health check.
            debug!(%peer, %error, "no greeting");
            return;
        }
        if let Some(before) = self.due() {
            warn!(%peer, %error, refused_before = before, "caller refused");
        }
    }

    /// Logs that a caller was dropped because too many said nothing at the same time, who keep others out.
    pub(super) fn log_crowd(&self, peer: impl fmt::Display) {
        if let Some(before) = self.due() {
            warn!(%peer, dropped_before = before, "caller dropped: too many say nothing at the same time; is somebody scanning this port?");
        }
    }

    /// Logs that a caller was not let in because so many others are, of at most `most`.
    pub fn log_full(&self, peer: impl fmt::Display, open: usize, most: usize) {
        if let Some(before) = self.due() {
            warn!(%peer, open, most, refused_before = before, "caller refused: too many connections are open; start more shards, or fewer workers on each");
        }
    }

    /// Logs that a caller was not served because the system gives this process no further thread.
    pub fn log_no_thread(&self, peer: impl fmt::Display, error: &io::Error) {
        if let Some(before) = self.due() {
            warn!(%peer, %error, refused_before = before, "caller refused: no thread for its connection; is it the limit on processes (ulimit -u, pids.max of the container)?");
        }
    }

    /// Logs that nobody could be let in, as where the limit on open files is reached.
    pub fn log_accept(&self, error: &io::Error) {
        let Some(before) = self.due() else { return };
        match NoDescriptor::behind(error) {
            Some(error) => {
                warn!(%error, hint = NoDescriptor::HINT, failed_before = before, "callers wait until a connection ends")
            }
            None => warn!(%error, failed_before = before, "no connection can be accepted"),
        }
    }

    fn due(&self) -> Option<u64> {
        lock(&self.0).due(Instant::now())
    }
}
