//! Logs that something is unavailable: a first warning, repeated warnings while it lasts, and the end.

use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

/// A shorter outage is not logged as a warning.
const FIRST_WARNING_AFTER: Duration = Duration::from_secs(2);
/// The warning is repeated at this interval.
const REPEAT_WARNING_AFTER: Duration = Duration::from_secs(60);

/// When an outage began, and when it was logged last.
#[derive(Debug, Default)]
pub struct OutageLogger {
    since: Option<Instant>,
    warned_at: Option<Instant>,
}

impl OutageLogger {
    /// Logs a failed attempt: as a warning if one is due, else at debug level.
    pub fn report(&mut self, error: &dyn std::fmt::Display, hint: &str) {
        match self.is_warning_due(Instant::now()) {
            true => warn!(%error, hint, "waiting"),
            false => debug!(%error, "still waiting"),
        }
    }

    fn is_warning_due(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = self.warned_at.map_or(since + FIRST_WARNING_AFTER, |at| at + REPEAT_WARNING_AFTER);
        if now >= due {
            self.warned_at = Some(now);
        }
        now >= due
    }

    /// Ends the outage. `what` names what works again; it is logged if the outage was.
    pub fn resolve(&mut self, what: &str) {
        let Self { since, warned_at } = std::mem::take(self);
        if let (Some(since), Some(_)) = (since, warned_at) {
            info!(waited_s = since.elapsed().as_secs(), "{what} again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_said_soon_and_once_a_minute() {
        let (mut outage, start) = (OutageLogger::default(), Instant::now());
        let warned_at = (0..200).filter(|s| outage.is_warning_due(start + Duration::from_secs(*s)));
        assert_eq!(warned_at.collect::<Vec<_>>(), [2, 62, 122, 182]);
    }

    #[test]
    fn what_passes_at_once_is_not_said() {
        let (mut outage, start) = (OutageLogger::default(), Instant::now());
        for second in 0..100 {
            assert!(!outage.is_warning_due(start + Duration::from_secs(second)));
            outage.resolve("the engine is there");
        }
    }
}
