//! How long one worker's iteration takes, as a function of its batch.

use serde::{Deserialize, Serialize};

/// Predicted time of an iteration; never falls as the batch grows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// A processor: `us_per_sample · x`.
    Proportional {
        /// Time of one sample, µs.
        us_per_sample: f64,
    },
    /// An accelerator, which small batches do not fill: `max(flat_us, fixed_us + us_per_sample · x)`.
    Curve {
        /// Time of any batch that does not fill the device, µs.
        flat_us: f64,
        /// What the line says of an empty batch, µs; below zero where a fit says so.
        fixed_us: f64,
        /// Slope of the line: what one more sample costs, µs.
        us_per_sample: f64,
    },
}

impl Cost {
    /// Time of an iteration of `batch` samples, µs. Never below zero, and never NaN; a slope below zero, or
    /// that is no number, counts as zero.
    pub fn us(&self, batch: u32) -> f64 {
        match *self {
            Self::Proportional { us_per_sample } => (us_per_sample * f64::from(batch)).max(0.0),
            Self::Curve { flat_us, fixed_us, us_per_sample } => {
                (fixed_us + us_per_sample.max(0.0) * f64::from(batch)).max(flat_us).max(0.0)
            }
        }
    }

    /// Where the line reaches `us`; exact but for rounding, NaN or out of range where there is no such batch.
    fn reaches(&self, us: f64) -> f64 {
        match *self {
            Self::Proportional { us_per_sample } => us / us_per_sample,
            Self::Curve { fixed_us, us_per_sample, .. } => (us - fixed_us) / us_per_sample,
        }
    }

    /// The largest batch from `min` to `max` that takes no longer than `us`; `min` if none does.
    ///
    /// Solves the line and corrects the rounding; where that does not do, bisects in O(log(max − min)).
    pub(super) fn most_within(&self, us: f64, min: u32, max: u32) -> u32 {
        let fits = |batch: u32| batch <= min || self.us(batch) <= us;
        let is_it = |batch: u32| fits(batch) && (batch >= max || !fits(batch + 1));
        let guess = (self.reaches(us) as u32).clamp(min, max);
        let near = [guess, guess.saturating_sub(1).max(min), guess.saturating_add(1).min(max)];
        if let Some(found) = near.into_iter().find(|&batch| is_it(batch)) {
            return found;
        }
        let (mut low, mut high) = (min, max);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_table() {
        let curve = Cost::Curve { flat_us: 14_600.0, fixed_us: 9_000.0, us_per_sample: 1_000.0 };
        #[rustfmt::skip]
        let cases = [
            ("proportional",            Cost::Proportional { us_per_sample: 2.5 },      4,  10.0),
            ("nothing to do",           Cost::Proportional { us_per_sample: 2.5 },      0,  0.0),
            ("flat",                    curve,                                          2,  14_600.0),
            ("linear",                  curve,                                          64, 73_000.0),
            ("never falls",             Cost::Proportional { us_per_sample: -1.0 },     4,  0.0),
            ("no number",               Cost::Proportional { us_per_sample: f64::NAN }, 4,  0.0),
        ];
        for (name, cost, batch, want) in cases {
            assert_eq!(cost.us(batch), want, "{name}");
        }
    }

    #[test]
    fn the_largest_batch_within_a_time_is_found_even_where_samples_cost_next_to_nothing() {
        let far = Cost::Curve { flat_us: 0.0, fixed_us: 1e15, us_per_sample: 1e-3 };
        for us in [0.0, 1e15, 1e15 + 1.0, 1e15 + 500.0, 1e18, f64::INFINITY] {
            let found = far.most_within(us, 1, 4_000_000);
            let fits = |batch| far.us(batch) <= us;
            assert!(found == 1 || fits(found), "{us}: {found}");
            assert!(found == 4_000_000 || !fits(found + 1), "{us}: {found}");
        }
    }
}
