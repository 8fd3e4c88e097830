//! When it is said that this process was not awake.

use std::{
    mem,
    time::{Duration, Instant},
};

use syncline_rpc::LogLimit;

/// At most one line in this time says that this process was not awake: on a busy machine it happens each
/// second.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How often this process was not awake, and for how long in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lateness {
    pub times: u64,
    pub late: Duration,
}

/// What the next line in the log says of it.
pub(super) struct LatenessLog {
    limit: LogLimit,
    /// Since the last line.
    unlogged: Duration,
}

impl Default for LatenessLog {
    fn default() -> Self {
        Self { limit: LogLimit::new(LOG_INTERVAL), unlogged: Duration::ZERO }
    }
}

impl LatenessLog {
    /// What is to be logged now, if anything is: all since the line before.
    pub(super) fn note(&mut self, late: Duration, now: Instant) -> Option<Lateness> {
        self.unlogged += late;
        let before = self.limit.due(now)?;
        Some(Lateness { times: before + 1, late: mem::take(&mut self.unlogged) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_tells_of_all_since_the_one_before() {
        let (begin, mut log) = (Instant::now(), LatenessLog::default());
        let mut note = |at_s: u64, late_ms: u64| {
            let said = log.note(Duration::from_millis(late_ms), begin + Duration::from_secs(at_s));
            said.map(|Lateness { times, late }| (times, late.as_millis()))
        };
        assert_eq!(note(0, 600), Some((1, 600)), "the first at once");
        assert_eq!([note(1, 500), note(59, 700)], [None, None]);
        assert_eq!(note(60, 800), Some((3, 2_000)));
        assert_eq!(note(200, 900), Some((1, 900)));
    }
}
