//! The engine's clock: epoch microseconds that never run backwards while the process lives.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

    pub(super) fn now_us(&self) -> u64 {
        self.began_us + u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
