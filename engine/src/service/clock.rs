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
