//! How long a broken connection is tried again.

use std::{
    thread,
    time::{Duration, Instant},
};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Bounds the time of failures without any progress.
pub(super) struct RetryBudget {
    limit: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl RetryBudget {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: None, pause: FIRST_PAUSE }
    }

    /// Progress was made: the time starts again with the next error.
    pub(super) fn progress(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Pauses before the next attempt, each time longer. Beyond the limit: `Err` with the milliseconds since the first
    /// error.
    pub(super) fn pause(&mut self) -> Result<(), u64> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let spent = since.elapsed();
        if spent >= self.limit {
            return Err(spent.as_millis() as u64);
        }
        thread::sleep(self.pause.min(self.limit - spent));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
