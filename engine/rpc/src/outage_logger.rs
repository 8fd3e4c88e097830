//! Logs that something is unavailable: a first warning, repeated warnings while it lasts, sooner where the
//! cause is another, and the end.

use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

/// A shorter outage is not logged as a warning.
const FIRST_WARNING_AFTER: Duration = Duration::from_secs(2);
/// The warning is repeated at this interval.
const REPEAT_WARNING_AFTER: Duration = Duration::from_secs(60);
/// Another cause is told this soon after the last warning: two may take turns.
const CHANGED_WARNING_AFTER: Duration = Duration::from_secs(10);

/// When an outage began, and when it was logged last.
#[derive(Debug, Default)]
pub struct OutageLogger {
    since: Option<Instant>,
    warned: Option<Warned>,
}

#[derive(Debug)]
struct Warned {
    at: Instant,
    cause: String,
}

impl OutageLogger {
    /// Logs a failed attempt: as a warning if one is due, else at debug level.
    pub fn report(&mut self, error: &dyn std::fmt::Display, hint: &str) {
        let cause = error.to_string();
        match self.is_warning_due(&cause, Instant::now()) {
            true => warn!(error = %cause, hint, "waiting"),
            false => debug!(error = %cause, "still waiting"),
        }
    }

    fn is_warning_due(&mut self, cause: &str, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = match &self.warned {
            None => since + FIRST_WARNING_AFTER,
            Some(warned) if warned.cause == cause => warned.at + REPEAT_WARNING_AFTER,
            Some(warned) => warned.at + CHANGED_WARNING_AFTER,
        };
        if now >= due {
            self.warned = Some(Warned { at: now, cause: cause.to_owned() });
        }
        now >= due
    }

    /// Ends the outage. `what` names what works again; it is logged if the outage was.
    pub fn resolve(&mut self, what: &str) {
        let Self { since, warned } = std::mem::take(self);
        if let (Some(since), Some(_)) = (since, warned) {
            info!(waited_s = since.elapsed().as_secs(), "{what} again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds in which a warning is due of causes that are tried each second, each for so long.
    fn warned_at(causes: &[(&str, u64)]) -> Vec<u64> {
        let (mut outage, start) = (OutageLogger::default(), Instant::now());
        let tries = causes.iter().flat_map(|(cause, for_s)| (0..*for_s).map(move |_| cause));
        let due = (0..)
            .zip(tries)
            .filter(|(s, cause)| outage.is_warning_due(cause, start + Duration::from_secs(*s)));
        due.map(|(second, _)| second).collect()
    }

    #[test]
    fn what_lasts_is_said_soon_and_once_a_minute() {
        assert_eq!(warned_at(&[("refused", 200)]), [2, 62, 122, 182]);
    }

    #[test]
    fn another_cause_is_said_sooner_but_not_each_time_that_two_take_turns() {
        assert_eq!(warned_at(&[("refused", 30), ("wrong token", 100)]), [2, 30, 90]);
        assert_eq!(warned_at(&[("refused", 5), ("wrong token", 60)]), [2, 12]);
        assert_eq!(warned_at(&[("refused", 1), ("no answer", 1)].repeat(15)), [2, 13, 24]);
    }

    #[test]
    fn what_passes_at_once_is_not_said() {
        let (mut outage, start) = (OutageLogger::default(), Instant::now());
        for second in 0..100 {
            assert!(!outage.is_warning_due("refused", start + Duration::from_secs(second)));
            outage.resolve("the engine is there");
        }
    }
}
