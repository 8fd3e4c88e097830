//! How long a broken connection is tried again.

use std::{
    thread,
    time::{Duration, Instant},
};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// An attempt is given so long at least.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(200);
/// How long a caller tries of which others say that the shard is there: it holds up everybody who trains with
/// it, and what it cannot do others can.
const HEARD_LIMIT: Duration = Duration::from_secs(8);

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

    /// Where this is the first failure: it took so long to be noticed, for which nothing came.
    pub(super) fn count_silence(&mut self, silence: Duration) {
        let now = Instant::now();
        self.since.get_or_insert_with(|| now.checked_sub(silence).unwrap_or(now));
    }

    /// Pauses before the next attempt, each time longer, and says how long that may take. Beyond the limit:
    /// `Err` with the milliseconds since the first error.
    pub(super) fn pause(&mut self) -> Result<Duration, u64> {
        self.pause_within(self.limit)
    }

    /// The same; `heard`: others hear of whatever cannot be reached from here.
    pub(super) fn pause_unless_heard(&mut self, heard: bool) -> Result<Duration, u64> {
        self.pause_within(if heard { self.limit.min(HEARD_LIMIT) } else { self.limit })
    }

    fn pause_within(&mut self, limit: Duration) -> Result<Duration, u64> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let spent = since.elapsed();
        if spent >= limit {
            return Err(spent.as_millis() as u64);
        }
        thread::sleep(self.pause.min(limit - spent));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(limit.saturating_sub(since.elapsed()).max(SHORTEST_ATTEMPT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_what_is_left_of_the_time_and_the_silence_before_the_first_failure_counts() {
        let second = Duration::from_secs(1);
        let left = |silences_s: &[u32]| {
            let mut retry = RetryBudget::new(60 * second);
            silences_s.iter().for_each(|silence_s| retry.count_silence(*silence_s * second));
            retry.pause_unless_heard(true).map(|left| left.as_secs_f64().ceil())
        };
        #[rustfmt::skip]
        let cases: [(&[u32], f64); 3] = [
            (&[],      8.0),
            (&[5],     3.0),
            // That of a later failure is counted already.
            (&[5, 50], 3.0),
        ];
        for (silences_s, left_s) in cases {
            assert_eq!(left(silences_s), Ok(left_s), "{silences_s:?}");
        }
    }

    #[test]
    fn what_others_hear_of_is_given_up_sooner() {
        let minute = Duration::from_secs(60);
        let failing_for =
            |spent| RetryBudget { since: Instant::now().checked_sub(spent), ..RetryBudget::new(minute) };
        let second = Duration::from_secs(1);
        assert!(failing_for(HEARD_LIMIT - second).pause_unless_heard(true).is_ok());
        assert!(failing_for(HEARD_LIMIT + second).pause_unless_heard(true).is_err());
        assert!(failing_for(HEARD_LIMIT + second).pause_unless_heard(false).is_ok());
        assert!(failing_for(minute + second).pause_unless_heard(false).is_err());
    }
}
