//! Lets one line in a time into the log: what strangers or a busy machine cause must not fill the disk.

use std::{
    mem,
    time::{Duration, Instant},
};

/// When the last line was logged, and how many were held back since.
#[derive(Debug)]
pub struct LogLimit {
    interval: Duration,
    logged_at: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// At most one line in `interval`; the first at once.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, logged_at: None, suppressed: 0 }
    }

    /// If a line is due now: how many were not logged since the one before. Otherwise this one is counted.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < self.interval) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_rest_in_one_line() {
        let (mut limit, start) = (LogLimit::new(Duration::from_secs(10)), Instant::now());
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(limit.due(start), Some(0));
        assert_eq!([1, 5, 9].map(|s| limit.due(after(s))), [None; 3]);
        assert_eq!(limit.due(after(10)), Some(3));
        assert_eq!((limit.due(after(19)), limit.due(after(20))), (None, Some(1)));
    }
}
