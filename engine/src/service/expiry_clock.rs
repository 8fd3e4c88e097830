//! Notices that the clock by which keys expire in Redis was set forward: what ended a moment ago by any other
//! measure is gone then.

use std::time::{Duration, Instant};

/// Clocks that are kept right differ by less, from one look to the next.
const MOST_DRIFT: Duration = Duration::from_secs(60);

/// The clock of the Redis server, beside one that nobody sets.
#[derive(Debug, Default)]
pub(super) struct ExpiryClock {
    /// When it was last read, and what it said, in seconds of the epoch.
    read: Option<(Instant, u64)>,
}

impl ExpiryClock {
    /// Takes what the clock says at `at`. Whether it was set forward since it was read before.
    pub(super) fn was_set_forward(&mut self, at: Instant, time_s: u64) -> bool {
        let Some((read_at, read_s)) = self.read.replace((at, time_s)) else { return false };
        let passed = at.saturating_duration_since(read_at);
        Duration::from_secs(time_s.saturating_sub(read_s)) > passed.saturating_add(MOST_DRIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_set_forward_where_more_time_passes_on_it_than_does() {
        let start = Instant::now();
        #[rustfmt::skip]
        let cases = [
            ("goes right",          10, 1_010,     false),
            ("drifts",              10, 1_070,     false),
            ("is set forward",      10, 1_071,     true),
            ("is set back",         10, 0,         false),
            ("begins after 1970",   10, u64::MAX,  true),
        ];
        for (name, passed_s, time_s, forward) in cases {
            let mut clock = ExpiryClock::default();
            assert!(!clock.was_set_forward(start, 1_000), "nothing is known yet");
            assert_eq!(
                clock.was_set_forward(start + Duration::from_secs(passed_s), time_s),
                forward,
                "{name}"
            );
        }
    }
}
