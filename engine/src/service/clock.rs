//! The engine's clock: epoch microseconds that never run backwards while the process lives.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::warn;

/// How far the clock of an engine may lie ahead of the system's time: one that is further ahead was set
/// wrong, and would be for ever.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 3600);

/// Starts at the system's time and goes on monotonically from there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    began: Instant,
    began_us: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX) }
    }

    /// The clock of an engine that takes over from one whose clock had come to `last_ms`: what jobs hold is
    /// not in its future, as long as that is not far ahead of the system's time.
    pub(super) fn going_on_from(self, last_ms: Option<u64>) -> Self {
        let ahead_us = last_ms.unwrap_or(0).saturating_mul(1_000).saturating_sub(self.now_us());
        let ahead_s = ahead_us / 1_000_000;
        if u128::from(ahead_us) > MAX_AHEAD.as_micros() {
            warn!(
                ahead_s,
                "the clock of the engine before was far ahead of this machine's, which is taken for right"
            );
            return self;
        }
        if ahead_s > 5 {
            warn!(ahead_s, "the clock of the engine before was ahead of this machine's: going on from there");
        }
        Self { began_us: self.began_us + ahead_us, ..self }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.began_us + u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_from_that_of_the_engine_before_unless_that_was_far_ahead() {
        let clock = Clock::start();
        let now_ms = clock.now_us() / 1_000;
        let day_ms = MAX_AHEAD.as_millis() as u64;
        for (last_ms, ahead_ms) in [
            (None, 0),
            (Some(now_ms - 3_600_000), 0),
            (Some(now_ms + 3_600_000), 3_600_000),
            (Some(now_ms + 2 * day_ms), 0),
            (Some(u64::MAX), 0),
        ] {
            let next_ms = clock.going_on_from(last_ms).now_us() / 1_000;
            let wanted_ms = now_ms + ahead_ms;
            assert!((wanted_ms..wanted_ms + 60_000).contains(&next_ms), "{last_ms:?}: {next_ms}");
        }
    }

    #[test]
    fn the_clock_starts_at_the_systems_time_and_never_runs_backwards() {
        let system_us = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let before_us = system_us();
        let clock = Clock::start();
        let times_us: Vec<u64> = (0..1_000).map(|_| clock.now_us()).collect();
        assert!(times_us.is_sorted() && times_us[0] >= before_us);
        assert!(times_us[0] - before_us < 60_000_000, "within a minute of the system's time");
    }
}
