//! Iterations that something held up, such as a shard that was away: what they took is no speed.
//!
//! Taken for one, an outage of seconds would be predicted for each iteration of a round of hundreds, and move
//! batches to others.

use serde::{Deserialize, Serialize};

/// An iteration that takes this many times as long as expected, and so much longer, was held up.
const FACTOR: u64 = 5;
const LONGER_US: u64 = 1_000_000;

/// Tells which iterations of a worker were held up: those that took far too long, unless the one before took
/// as long. Then the worker has become slow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldUp {
    /// How many took so long, one after the other, of those that push. Inside a local round none does, and
    /// that one is quick says nothing of the link.
    pushing: u32,
    /// The same of those that do not.
    local: u32,
}

impl HeldUp {
    /// Whether nothing is to be remembered.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an iteration was held up. To be asked once of each.
    pub fn judge(&mut self, pushes: bool, took_us: u64, expected_us: u64) -> bool {
        let limit_us = expected_us.saturating_mul(FACTOR).max(expected_us.saturating_add(LONGER_US));
        let in_a_row = if pushes { &mut self.pushing } else { &mut self.local };
        *in_a_row = if took_us > limit_us { in_a_row.saturating_add(1) } else { 0 };
        *in_a_row == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_long_iteration_was_held_up_and_a_second_one_was_not_table() {
        /// Whether it pushes, how long it took where 100 ms were expected, and whether it was held up.
        type Case = (bool, u64, bool);
        #[rustfmt::skip]
        let cases: [(&str, &[Case]); 6] = [
            ("an outage",               &[(true, 60_000, true), (true, 100, false)]),
            ("two outages",             &[(true, 60_000, true), (true, 100, false), (true, 9_000, true)]),
            ("it has become slow",      &[(true, 2_000, true), (true, 2_000, false), (true, 2_000, false)]),
            ("a second is not so much", &[(true, 1_100, false), (true, 1_101, true)]),
            ("a link that became slow", &[(true, 9_000, true), (false, 100, false), (true, 9_000, false)]),
            ("a machine that slept",    &[(false, 9_000, true), (true, 9_000, true)]),
        ];
        for (name, iterations) in cases {
            let mut held_up = HeldUp::default();
            for (nth, &(pushes, took_ms, want)) in iterations.iter().enumerate() {
                assert_eq!(held_up.judge(pushes, took_ms * 1_000, 100_000), want, "{name}, {nth}");
            }
        }
        assert!(!HeldUp::default().judge(true, 25_000_000, 5_000_000), "five times as slow");
        assert!(!HeldUp::default().judge(true, u64::MAX, u64::MAX));
    }
}
