//! Names workers that are persistently much slower than the others.

use serde::{Deserialize, Serialize};

use super::{
    event::{Happening, RelativeSpeed},
    job::Job,
};
use crate::ids::Incarnation;

/// A worker this many times as slow as the median is slow; below the second factor it is not any more.
const SLOW: f64 = 1.5;
pub(super) const NOT_SLOW: f64 = 1.3;
/// Who was slow stays so at least this long: short steps on a busy machine would change it many times a
/// second.
const SLOW_AT_LEAST_US: u64 = 1_000_000;
/// A worker was watched for at least this long before people are told that it is slow: of steps below a
/// millisecond a few that somebody interrupted say nothing.
const TELL_AFTER_US: u64 = 500_000;
/// Iterations of each worker, on average, between two looks.
const LOOK_EVERY: u64 = 4;

/// So long nothing is told of a worker of which something was told first; then for twice as long each time.
const TELL_PAUSE_US: u64 = 1_000_000;
const LONGEST_TELL_PAUSE_US: u64 = 600_000_000;
/// Behind so long a time without a change the pauses begin anew.
const STEADY_US: u64 = 3_600_000_000;

/// What people were told last of a worker that may be slow. A job keeps few events, and one whose speed is
/// about the limit would fill them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StragglerNotice {
    /// Whether it was said to be slow; `false`: to have recovered, or nothing was said.
    pub slow: bool,
    /// When, in epoch µs; 0: never.
    pub at_us: u64,
    /// How often something was told.
    pub times: u32,
}

impl StragglerNotice {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether people are to be told now that a worker is slow, or is so no more.
    fn is_news(&mut self, slow: bool, now_us: u64) -> bool {
        let since_us = now_us.saturating_sub(self.at_us);
        if slow == self.slow || since_us < self.pause_us() {
            return false;
        }
        let times = if since_us > STEADY_US { 0 } else { self.times };
        *self = Self { slow, at_us: now_us, times: times.saturating_add(1) };
        true
    }

    fn pause_us(&self) -> u64 {
        match self.times.checked_sub(1) {
            None => 0,
            Some(doubled) => (TELL_PAUSE_US << doubled.min(16)).min(LONGEST_TELL_PAUSE_US),
        }
    }
}

/// Whether people are to think of a worker as slow, who were told so or not. `newest` and `mean`: how many
/// times as slow as most it is now and was over its newest iterations; the mean is `None` as long as these
/// are too few.
///
/// One that is as quick as the others again is not called slow because of the moment before, and one that was
/// interrupted once is not called slow at all.
fn is_called_slow(was_called: bool, newest: f64, mean: Option<f64>) -> bool {
    match mean {
        None => was_called,
        Some(mean) if was_called => mean >= NOT_SLOW,
        Some(mean) => newest.min(mean) >= SLOW,
    }
}

/// The one in the middle, the lower one of two.
fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2).copied()
}

impl Job {
    /// Looks at the speeds now and then. Amortized cost per iteration O(log n).
    pub(super) fn detect_stragglers(&mut self, now_us: u64) {
        let workers = self.clocks.len() as u64;
        if workers < 2 || !self.state.counters.done.is_multiple_of(LOOK_EVERY * workers) {
            return;
        }
        let speed = |w: Incarnation| Some((w, 1e6 / self.members[&w].speed.samples_per_s()?));
        let each: Vec<(Incarnation, f64)> = self.active().filter_map(speed).collect();
        let Some(of_most) = median(each.iter().map(|(_, us_per_sample)| *us_per_sample).collect()) else {
            return;
        };
        let settled = |w: Incarnation| self.members[&w].speed.settled_us_per_sample();
        let settled_of_most = median(self.active().filter_map(settled).collect());
        for (worker, us_per_sample) in each {
            let factor = us_per_sample / of_most;
            let settled = self.members[&worker].speed.settled_us_per_sample();
            let mean = settled.zip(settled_of_most).map(|(own, of_most)| own / of_most);
            let (slow, mut told) = (self.members[&worker].straggler, self.members[&worker].slow_told);
            let now_slow = match slow {
                Some(s) => factor >= NOT_SLOW || now_us < s.since_us + SLOW_AT_LEAST_US,
                None => factor >= SLOW,
            };
            let watched_us = LOOK_EVERY * self.members[&worker].interval_us
                + slow.map_or(0, |slow| now_us.saturating_sub(slow.since_us));
            let is_slow = is_called_slow(told.slow, factor, mean);
            let tells_slow = is_slow && (told.slow || watched_us >= TELL_AFTER_US);
            let is_news = told.is_news(tells_slow, now_us);
            if !now_slow && slow.is_none() && !is_news {
                continue;
            }
            if is_news {
                let batch = f64::from(self.members[&worker].batch);
                let interval_us = |us_per_sample: f64| (us_per_sample * batch).round() as u64;
                let speed = RelativeSpeed {
                    factor,
                    interval_us: interval_us(us_per_sample),
                    median_interval_us: interval_us(of_most),
                };
                let worker = self.named(worker);
                self.tell(
                    match tells_slow {
                        true => Happening::WorkerSlow { worker, speed },
                        false => Happening::WorkerRecovered { worker, speed },
                    },
                    now_us,
                );
            }
            let since_us = slow.map_or(now_us, |s| s.since_us);
            let member = self.member_mut(worker);
            member.straggler = now_slow.then_some(super::Straggler { since_us, factor });
            member.slow_told = told;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn who_is_called_slow_table() {
        #[rustfmt::skip]
        let cases = [
            // Was called so, how slow it is now, and over many iterations; whether it is called so.
            ("its first iterations",            false, 9.0, None,      false),
            ("too few since it was",            true,  1.0, None,      true),
            ("slow for long",                   false, 2.0, Some(1.6), true),
            ("interrupted once",                false, 9.0, Some(1.4), false),
            ("quick again",                     false, 1.0, Some(1.6), false),
            ("an iteration between slow ones",  true,  1.0, Some(1.6), true),
            ("not quick enough to recover",     true,  1.0, Some(1.3), true),
            ("recovered",                       true,  1.0, Some(1.2), false),
            ("recovered, interrupted once",     true,  9.0, Some(1.2), false),
        ];
        for (name, was_called, newest, mean, want) in cases {
            assert_eq!(is_called_slow(was_called, newest, mean), want, "{name}");
        }
    }

    #[test]
    fn what_is_told_of_a_worker_table() {
        /// A second, and whether it is slow then.
        type Look = (u64, bool);
        #[rustfmt::skip]
        let cases: &[(&str, &[Look], &[u64])] = &[
            ("one that was never slow",     &[(0, false), (5, false)],                      &[]),
            ("one that is slow",            &[(0, true), (5, true), (500, true)],           &[0]),
            ("and recovers",                &[(0, true), (1, false), (9, false)],           &[0, 1]),
            ("slow for a moment again",     &[(0, true), (1, false), (2, true), (2, false)], &[0, 1]),
            ("slow again, and stays so",    &[(0, true), (1, false), (2, true), (3, true)], &[0, 1, 3]),
            ("the next day once more",      &[(0, true), (1, false), (90_000, true), (90_001, false)],
                                                                                            &[0, 1, 90_000, 90_001]),
        ];
        for (name, looks, want) in cases {
            let mut told = StragglerNotice::default();
            let told: Vec<u64> = looks
                .iter()
                .filter(|(at_s, slow)| told.is_news(*slow, 1_000_000 * SECOND_US + at_s * SECOND_US))
                .map(|(at_s, _)| *at_s)
                .collect();
            assert_eq!(told, *want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_worker_about_the_limit_is_told_of_seldom_and_in_the_end_as_it_is(
            looks in prop::collection::vec((1_000u64..30_000_000, any::<bool>()), 1..3_000),
        ) {
            let (mut told, mut now_us, mut news) = (StragglerNotice::default(), 1, Vec::new());
            for (later_us, slow) in looks {
                now_us += later_us;
                if told.is_news(slow, now_us) {
                    news.push((now_us, slow));
                }
            }
            // Ten doublings, and then once in ten minutes.
            prop_assert!(news.len() as u64 <= 12 + now_us / LONGEST_TELL_PAUSE_US, "{} in {now_us} us", news.len());
            prop_assert!(news.windows(2).all(|two| two[0].1 != two[1].1), "twice the same");
            // Whatever it is at last is told at last.
            let stays = !told.slow;
            prop_assert!(told.is_news(stays, now_us + LONGEST_TELL_PAUSE_US));
        }
    }
}
