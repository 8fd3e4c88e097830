//! Times with fractions on a grid of whole numbers, so that a search on them is exact.

use std::fmt;

use serde::{Serialize, Serializer};

/// Decimal digits tried.
const MOST_DIGITS: i32 = 12;
/// Binary digits tried where the decimal ones do not do.
const MOST_BITS: i32 = 512;
/// Below it every whole number is an `f64` of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Times below it, on any grid, leave room for their differences in 64 bits.
const ROOM: f64 = 4_611_686_018_427_387_904.0;

/// A grid with a step of 10^-d, d being the decimal digits that the times of a case have: on it 20.3 is the
/// number that a reader takes it for, and two windows from 10.1 to 20.3 and from 20.1 to 30.3 are equally
/// wide. Times with more digits than fit are binary fractions to us, on a grid with the smallest step 2^-b
/// that fits the largest of them; that holds them exactly unless they differ by a factor of 500 and more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticks {
    per_unit: f64,
    /// The earliest time of the case, which is tick 0.
    origin: i64,
}

impl Ticks {
    /// The grid for these times. `None` if one is not finite or not between -2^53 and 2^53. Cost: one pass
    /// over the times per digit.
    ///
    /// ```
    /// use syncline_scheduler::sync::search::Ticks;
    /// let times = [10.1, 20.3];
    /// let ticks = Ticks::fitting(times.iter().copied()).unwrap();
    /// assert_eq!(ticks.of(20.3), 102);
    /// assert_eq!(ticks.length(102u64).to_string(), "10.2");
    /// ```
    pub fn fitting(times: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        Self::reaching(times, 0.0)
    }

    /// Ticks that fit these times, with room for some as large as `reach`, which will be computed from these.
    pub fn reaching(times: impl Iterator<Item = f64> + Clone, reach: f64) -> Option<Self> {
        let size = |t: f64| t.is_finite().then(|| t.abs());
        let largest = times.clone().try_fold(size(reach)?, |largest: f64, t| Some(largest.max(size(t)?)))?;
        if largest >= EXACT {
            return None;
        }
        let mut decimal = (0..=MOST_DIGITS).map(|digits| 10f64.powi(digits));
        // Division rounds correctly, so a decimal number passes exactly on the grids that hold it.
        let holds = |per_unit: f64| times.clone().all(|t| (t * per_unit).round() / per_unit == t);
        let per_unit = match decimal.find(|&per_unit| largest * per_unit < EXACT && holds(per_unit)) {
            Some(per_unit) => per_unit,
            None => (0..=MOST_BITS).rev().map(|bits| 2f64.powi(bits)).find(|&p| largest * p < ROOM)?,
        };
        let earliest = times.fold(largest, f64::min);
        Some(Self { per_unit, origin: (earliest * per_unit).round() as i64 })
    }

    /// The tick of a time, counted from the earliest of the case.
    pub fn of(self, time: f64) -> u64 {
        ((time * self.per_unit).round() as i64).abs_diff(self.origin)
    }

    /// The time of a tick.
    pub fn time(self, tick: u64) -> Time {
        Time((i128::from(self.origin) + i128::from(tick)) as f64 / self.per_unit)
    }

    /// How long so many ticks are.
    pub fn length(self, ticks: impl Into<u128>) -> Time {
        Time(ticks.into() as f64 / self.per_unit)
    }
}

/// A time in the unit of its case. A whole one is written as an integer.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Time(f64);

impl Time {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }

    fn whole(self) -> Option<i64> {
        (self.0.fract() == 0.0 && self.0.abs() <= EXACT).then_some(self.0 as i64)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.whole() {
            Some(whole) => serializer.serialize_i64(whole),
            None => serializer.serialize_f64(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (name, times, their ticks)
    type Case<'a> = (&'a str, &'a [f64], Option<&'a [u64]>);

    #[test]
    fn ticks_table() {
        #[rustfmt::skip]
        let cases: &[Case] = &[
            ("whole numbers stay",    &[3.0, 10.0],             Some(&[0, 7])),
            ("eighths",               &[31.625, 35.125],        Some(&[0, 3_500])),
            ("decimals",              &[0.1, 0.3],              Some(&[0, 2])),
            ("negative times",        &[-2.5, 2.5],             Some(&[0, 50])),
            ("the largest",           &[0.0, 9_007_199_254_740_991.0], Some(&[0, 9_007_199_254_740_991])),
            ("too large",             &[9_007_199_254_740_992.0], None),
            ("no number",             &[f64::NAN],              None),
            ("thirds are binary",     &[0.0, 1.0 / 3.0],        Some(&[0, 0x2AAA_AAAA_AAAA_AA00])),
        ];
        for (name, times, want) in cases {
            let ticks = Ticks::fitting(times.iter().copied());
            let found: Option<Vec<u64>> = ticks.map(|ticks| times.iter().map(|&t| ticks.of(t)).collect());
            assert_eq!(found.as_deref(), *want, "{name}");
        }
    }

    #[test]
    fn a_whole_time_is_written_as_an_integer() {
        let ticks = Ticks::fitting([1.5, 4.0].into_iter()).unwrap();
        let written = |tick| serde_json::to_string(&ticks.time(tick)).unwrap();
        assert_eq!((written(0), written(25)), ("1.5".into(), "4".into()));
        assert_eq!(ticks.length(20u64).to_string(), "2");
    }

    proptest! {
        #[test]
        fn a_decimal_comes_back_as_it_was(
            thousandths in prop::collection::vec(-1_000_000_000i64..1_000_000_000, 1..20)
        ) {
            let times: Vec<f64> = thousandths.iter().map(|&t| t as f64 / 1e3).collect();
            let ticks = Ticks::fitting(times.iter().copied()).unwrap();
            for &t in &times {
                prop_assert_eq!(ticks.time(ticks.of(t)).get(), t);
            }
        }

        #[test]
        fn any_fraction_comes_back_as_it_was(times in prop::collection::vec(1e3f64..1e5, 1..20)) {
            let ticks = Ticks::fitting(times.iter().copied()).unwrap();
            for &t in &times {
                prop_assert_eq!(ticks.time(ticks.of(t)).get(), t);
            }
        }
    }
}
