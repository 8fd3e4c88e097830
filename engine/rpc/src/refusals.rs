//! Logs callers that were refused, such as those with a wrong token file, at a bounded rate.

use std::{
    fmt, io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{debug, warn};

use super::{hello::HelloError, open_files::NoDescriptor};

/// At most one line in this time: a stranger must not be able to fill the disk.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What one listener has refused recently.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    logged_at: Option<Instant>,
    /// Refused since then.
    suppressed: u64,
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).due(Instant::now())
    }
}

impl Recent {
    /// How many refusals were not logged since the last line, if a line is due now.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_rest_in_one_line() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(recent.due(start), Some(0));
        assert_eq!([1, 5, 9].map(|s| recent.due(after(s))), [None; 3]);
        assert_eq!(recent.due(after(10)), Some(3));
        assert_eq!((recent.due(after(19)), recent.due(after(20))), (None, Some(1)));
    }
}
