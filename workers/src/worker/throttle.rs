//! Emulates a slower machine by sleeping after compute.
//!
//! The time is that of an iteration on the job's batch; one on fewer samples is shorter in proportion.

use std::{
    thread,
    time::{Duration, Instant},
};

/// An iteration on a whole batch lasts `slowdown` times as long as `step`, or as it computes where that is
/// longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// Least time of an iteration on a whole batch, before `slowdown`; zero: that of its compute.
    pub step: Duration,
    /// Factor on that time, 1 by default; below 1 it shortens `step`, and compute never.
    pub slowdown: f64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { step: Duration::ZERO, slowdown: 1.0 }
    }
}

impl Throttle {
    /// Largest factor that a command line takes: with it a millisecond lasts a quarter of an hour.
    pub const MAX_SLOWDOWN: f64 = 1e6;

    /// Whether a worker may be so many times slower.
    pub fn takes(slowdown: f64) -> bool {
        slowdown > 0.0 && slowdown <= Self::MAX_SLOWDOWN
    }

    /// Sleeps after `computed`, and returns how long that really was. `share`: see [`delay`](Self::delay).
    pub(super) fn sleep(&self, computed: Duration, share: f64) -> Duration {
        let delay = self.delay(computed, share);
        if delay.is_zero() {
            return Duration::ZERO;
        }
        let began = Instant::now();
        thread::sleep(delay);
        began.elapsed()
    }

    /// How long to sleep after `computed`. `share`: samples of the iteration over those of the job's batch.
    pub fn delay(&self, computed: Duration, share: f64) -> Duration {
        let of_step = times(self.step, self.slowdown * share).saturating_sub(computed);
        of_step.max(times(computed, self.slowdown - 1.0))
    }
}

/// A product that is too large is the longest time there is; a factor that is none counts as 0.
fn times(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_table() {
        let ms = Duration::from_millis;
        #[rustfmt::skip]
        let cases = [
            ("off",                    0,  1.0, 3,  1.0, 0),
            ("its own compute",        0,  2.5, 4,  0.5, 6),
            ("none is faster",         0,  0.5, 4,  1.0, 0),
            ("fills up to the step",   10, 1.0, 3,  1.0, 7),
            ("slower machine",         10, 2.5, 3,  1.0, 22),
            ("compute took longer",    10, 1.0, 12, 1.0, 0),
            ("and is slower as well",  10, 2.5, 12, 1.0, 18),
            ("half a batch",           10, 2.0, 3,  0.5, 7),
            ("twice the batch",        10, 2.0, 3,  2.0, 37),
        ];
        for (name, step, slowdown, computed, share, delay) in cases {
            assert_eq!(Throttle { step: ms(step), slowdown }.delay(ms(computed), share), ms(delay), "{name}");
        }
    }

    #[test]
    fn what_no_duration_holds_is_the_longest_one() {
        for step in [Duration::ZERO, Duration::from_millis(u64::MAX)] {
            let delay = Throttle { step, slowdown: 1e300 }.delay(Duration::from_millis(1), 1.0);
            assert!(delay > Duration::from_secs(1 << 60), "{delay:?}");
        }
        assert!(Throttle::takes(0.5) && Throttle::takes(1e6));
        assert!(![0.0, -1.0, 1e30, f64::NAN, f64::INFINITY].into_iter().any(Throttle::takes));
    }
}
