//! Callers that were refused, in the log: whoever has a wrong token file, or no business here, must not stay unseen.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{debug, warn};

use super::hello::HelloError;

/// One line in this time: a stranger must not be able to fill the disk.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What one listener has refused lately.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    said: Option<Instant>,
    /// Refused since then.
    unsaid: u64,
}

impl Refusals {
    /// Logs the refusal of a caller, or counts it for the next line. What the caller sent is never repeated.
    pub fn note(&self, peer: SocketAddr, error: &HelloError) {
        if matches!(error, HelloError::Io(_)) {
            // Whoever looks whether the port is open, such as a health check.
            debug!(%peer, %error, "no greeting");
            return;
        }
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = lately.due(Instant::now()) {
            warn!(%peer, %error, refused_before = before, "caller refused");
        }
    }
}

impl Lately {
    /// How many were refused without a word since the last line, if there is to be one now.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.said.is_some_and(|said| now.saturating_duration_since(said) < LINE_EVERY) {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_rest_in_one_line() {
        let (mut lately, start) = (Lately::default(), Instant::now());
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(lately.due(start), Some(0));
        assert_eq!([1, 5, 9].map(|s| lately.due(after(s))), [None; 3]);
        assert_eq!(lately.due(after(10)), Some(3));
        assert_eq!((lately.due(after(19)), lately.due(after(20))), (None, Some(1)));
    }
}
