//! How fast a job has been lately, from two marks: the average since its start hides that it has become slow,
//! or stands.

use serde::{Deserialize, Serialize};

/// A mark is left behind after this time: the figure covers one to two times as much.
const MARK_EVERY_US: u64 = 5_000_000;
/// The first samples may be counted a moment after the last look at none: that moment is no measure.
const SHORTEST_US: u64 = 250_000;

/// Samples counted by a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RatePoint {
    at_us: u64,
    samples: u64,
}

/// Where the count of a job's samples was a few seconds ago.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentRate {
    from: RatePoint,
    next: RatePoint,
    newest: RatePoint,
}

impl RecentRate {
    /// Notes how many samples are counted now. Time before the first that are counted since it began does not
    /// count.
    pub(super) fn note(&mut self, now_us: u64, samples: u64) {
        let now = RatePoint { at_us: now_us, samples };
        let has_begun = self.from != self.next || self.from != self.newest;
        if !has_begun && samples == self.from.samples {
            self.begin_anew(now_us, samples);
        } else if samples != self.newest.samples {
            self.newest = now;
        }
        if now_us.saturating_sub(self.next.at_us) >= MARK_EVERY_US {
            (self.from, self.next) = (self.next, now);
        }
    }

    /// Begins with `samples` that are counted: by the job from which it goes on, before it was paused, or the
    /// count has gone back.
    pub(super) fn begin_anew(&mut self, now_us: u64, samples: u64) {
        let now = RatePoint { at_us: now_us, samples };
        *self = Self { from: now, next: now, newest: now };
    }

    /// Samples per second over the last five to ten seconds.
    pub(super) fn samples_per_s(&self, now_us: u64, samples: u64) -> f64 {
        let span_us = now_us.saturating_sub(self.from.at_us).max(SHORTEST_US);
        samples.saturating_sub(self.from.samples) as f64 / (span_us as f64 / 1e6)
    }

    /// When the count last rose, in µs; before the first sample, when it was last looked at.
    pub(super) fn progress_us(&self) -> u64 {
        self.newest.at_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_follows_a_job_that_slows_down_and_shows_when_it_stood_still() {
        let mut recent_rate = RecentRate::default();
        let (mut now_us, mut samples) = (1_000_000_000, 0);
        recent_rate.note(now_us, 0);
        let mut run = |seconds: u64, per_s: u64| {
            for _ in 0..seconds {
                now_us += 1_000_000;
                samples += per_s;
                recent_rate.note(now_us, samples);
            }
            (recent_rate.samples_per_s(now_us, samples), now_us - recent_rate.progress_us())
        };
        assert_eq!(run(30, 1_000), (1_000.0, 0));
        assert_eq!(run(10, 100), (100.0, 0));
        assert_eq!(run(20, 0), (0.0, 20_000_000));
    }

    #[test]
    fn a_wait_before_the_first_sample_does_not_count() {
        let mut recent_rate = RecentRate::default();
        for s in 0..60 {
            recent_rate.note(s * 1_000_000, 0);
        }
        recent_rate.note(60_000_000, 500);
        assert_eq!(recent_rate.samples_per_s(60_000_000, 500), 500.0);
    }

    #[test]
    fn a_first_batch_a_moment_after_a_look_is_no_speed() {
        let mut recent_rate = RecentRate::default();
        recent_rate.note(1_000_000, 0);
        recent_rate.note(1_000_020, 64);
        assert_eq!(recent_rate.samples_per_s(1_000_020, 64), 256.0);
    }

    #[test]
    fn what_was_counted_before_it_began_anew_and_the_wait_for_the_next_sample_do_not_count() {
        let mut recent_rate = RecentRate::default();
        recent_rate.begin_anew(1_000_000_000, 90_000);
        for s in 0..20 {
            recent_rate.note(1_000_000_000 + s * 1_000_000, 90_000);
        }
        recent_rate.note(1_020_000_000, 90_700);
        assert_eq!(recent_rate.samples_per_s(1_020_000_000, 90_700), 700.0);
        recent_rate.note(1_030_000_000, 97_700);
        assert_eq!(recent_rate.samples_per_s(1_030_000_000, 97_700), 700.0);
    }
}
