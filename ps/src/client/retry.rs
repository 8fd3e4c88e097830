//! How long a broken connection is tried again.

use std::{
    thread,
    time::{Duration, Instant},
};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// An attempt is given so long at least.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(200);
/// What takes longer than it may by so much was suspended: the process was stopped, or its machine slept.
const OVERRUN: Duration = Duration::from_secs(1);
/// How long a caller tries of which others say that the shard is there: it holds up everybody who trains with
/// it, and what it cannot do others can.
const HEARD_LIMIT: Duration = Duration::from_secs(8);

/// Bounds the time of failures without any progress. Time in which this process did not run is none of that,
/// as far as it shows.
pub(super) struct RetryBudget {
    limit: Duration,
    since: Option<Instant>,
    pause: Duration,
    /// When the last attempt began, and how long it may take.
    attempt: Option<(Instant, Duration)>,
    /// An attempt took longer than it may, and was not counted. That happens once: it may have hung.
    has_forgiven: bool,
}

impl RetryBudget {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: None, pause: FIRST_PAUSE, attempt: None, has_forgiven: false }
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

    /// The same; `heard_since`: from then on others hear of whatever cannot be reached from here. Until then it
    /// may have been away.
    pub(super) fn pause_unless_heard(&mut self, heard_since: Option<Instant>) -> Result<Duration, u64> {
        let Some(heard_since) = heard_since else { return self.pause() };
        let since = self.since.unwrap_or_else(Instant::now);
        self.pause_within(self.limit.min(heard_since.saturating_duration_since(since) + HEARD_LIMIT))
    }

    fn pause_within(&mut self, limit: Duration) -> Result<Duration, u64> {
        self.pause_with(limit, Instant::now(), |pause| {
            let begun = Instant::now();
            thread::sleep(pause);
            begun.elapsed()
        })
    }

    /// `sleep`: how long that took.
    fn pause_with(
        &mut self,
        limit: Duration,
        now: Instant,
        sleep: impl FnOnce(Duration) -> Duration,
    ) -> Result<Duration, u64> {
        let since = *self.since.get_or_insert(now) + self.suspended_in_attempt(now);
        let spent = now.saturating_duration_since(since);
        if spent >= limit {
            return Err(spent.as_millis() as u64);
        }
        let pause = self.pause.min(limit - spent);
        let took = sleep(pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let (since, awake) = (since + suspended(took, pause), now + took);
        let left = limit.saturating_sub(awake.saturating_duration_since(since)).max(SHORTEST_ATTEMPT);
        (self.since, self.attempt) = (Some(since), Some((awake, left)));
        Ok(left)
    }

    /// What of the attempt that has ended now does not count. How much of it was one nobody knows: it has
    /// what it had before it.
    fn suspended_in_attempt(&mut self, now: Instant) -> Duration {
        let Some((begun, may_take)) = self.attempt.take() else { return Duration::ZERO };
        let took = now.saturating_duration_since(begun);
        if self.has_forgiven || suspended(took, may_take).is_zero() {
            return Duration::ZERO;
        }
        self.has_forgiven = true;
        took
    }
}

/// How long a process was suspended in something that `took` longer than it may.
fn suspended(took: Duration, may_take: Duration) -> Duration {
    if took > may_take + OVERRUN { took - may_take } else { Duration::ZERO }
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
            let heard_since = Instant::now().checked_sub(60 * second);
            retry.pause_unless_heard(heard_since).map(|left| left.as_secs_f64().ceil())
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
    fn time_in_which_this_process_did_not_run_is_none_in_which_the_shard_was_away() {
        let (second, limit) = (Duration::from_secs(1), Duration::from_secs(8));
        let begun = Instant::now();
        let mut retry = RetryBudget::new(limit);
        let mut fails = |at_s: u32, suspended_s: u32| {
            let now = begun + at_s * second;
            retry
                .pause_with(limit, now, |pause| pause + suspended_s * second)
                .map(|left| left.as_secs_f64().ceil())
        };
        assert_eq!(fails(0, 0), Ok(8.0));
        assert_eq!(fails(3, 0), Ok(5.0));
        // Suspended in the pause.
        assert_eq!(fails(4, 120), Ok(4.0));
        assert_eq!(fails(125, 0), Ok(3.0));
        // In an attempt, which took longer than the three seconds that it had.
        assert_eq!(fails(245, 0), Ok(3.0));
        // Again: it hangs.
        assert!(fails(365, 0).is_err());
        assert_eq!(suspended(second * 6, second * 5), Duration::ZERO, "a slow machine");
    }

    #[test]
    fn what_others_hear_of_is_given_up_sooner() {
        let minute = Duration::from_secs(60);
        let failing_for =
            |spent| RetryBudget { since: Instant::now().checked_sub(spent), ..RetryBudget::new(minute) };
        let second = Duration::from_secs(1);
        let cases = [
            (HEARD_LIMIT - second, Some(minute), true),
            (HEARD_LIMIT + second, Some(minute), false),
            (HEARD_LIMIT + second, None, true),
            // Nobody heard of it before.
            (HEARD_LIMIT + 9 * second, Some(HEARD_LIMIT - second), true),
            (HEARD_LIMIT + 9 * second, Some(HEARD_LIMIT + second), false),
            (minute + second, None, false),
            (minute + second, Some(second), false),
        ];
        for (failing, heard, goes_on) in cases {
            let heard_since = heard.and_then(|ago| Instant::now().checked_sub(ago));
            let paused = failing_for(failing).pause_unless_heard(heard_since);
            assert_eq!(paused.is_ok(), goes_on, "failing for {failing:?}, heard for {heard:?}");
        }
    }
}
