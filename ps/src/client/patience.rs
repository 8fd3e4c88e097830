//! How long a broken connection is put up with.

use std::{
    thread,
    time::{Duration, Instant},
};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Counts the time since things went wrong without any progress.
pub(super) struct Patience {
    limit: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: None, pause: FIRST_PAUSE }
    }

    /// Something moved: the clock starts afresh with the next trouble.
    pub(super) fn progress(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Pauses before the next attempt, each time longer. Returns the milliseconds of trouble once it was too long.
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
