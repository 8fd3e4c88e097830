//! The axes of a picture: from where to where, and which figures stand there.

/// Intervals between figures that an axis of losses has at most, and one of samples or time.
const INTERVALS: f64 = 6.0;
const INTERVALS_ALONG: f64 = 8.0;
/// Where the largest loss is so many times the smallest one, equal ratios get equal room: else all but the
/// beginning of a curve would lie in a strip at the bottom.
const LOG_FROM: f64 = 30.0;
/// Figures of an axis of ratios, at most; with fewer, halves of ten get theirs.
const LOG_FIGURES: usize = 10;

/// From a value to its share of the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Axis {
    /// Both ends and the distance of its figures.
    Linear { low: f64, high: f64, step: f64 },
    /// Both ends are 1, 2 or 5 times a power of ten.
    Log { low: Round, high: Round },
}

/// 1, 2 or 5 times a power of ten: three of them for each power, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Round(i32);

impl Round {
    /// The largest that is not above a positive value.
    fn below(value: f64) -> Self {
        let first = Self(3 * (value.log10().floor() as i32 - 1));
        let mut all = (0..9).map(|n| Self(first.0 + n)).filter(|round| round.value() <= value);
        all.next_back().unwrap_or(first)
    }

    /// The smallest that is not below.
    fn above(value: f64) -> Self {
        let below = Self::below(value);
        if below.value() < value { Self(below.0 + 1) } else { below }
    }

    fn power(self) -> i32 {
        self.0.div_euclid(3)
    }

    fn value(self) -> f64 {
        // As it is written, so that it is the number nearest to that.
        self.exact().parse().unwrap_or(f64::MAX)
    }

    fn exact(self) -> String {
        format!("{}e{}", [1, 2, 5][self.0.rem_euclid(3) as usize], self.power())
    }

    /// `0.002`, `1`, `500`, `1e-7`.
    fn figure(self) -> String {
        match self.power() {
            0..=4 => format!("{:.0}", self.value()),
            power @ -4..=-1 => format!("{:.*}", power.unsigned_abs() as usize, self.value()),
            _ => self.exact(),
        }
    }
}

impl Axis {
    /// For what counts from zero: it ends with the last value.
    pub(super) fn from_zero(most: f64) -> Self {
        let high = if most > 0.0 { most } else { 1.0 };
        Self::Linear { low: 0.0, high, step: round_step(high, INTERVALS_ALONG) }
    }

    /// For losses: both ends have a figure. What is not finite has no place on it.
    pub(super) fn of_losses(losses: impl Iterator<Item = f64>) -> Self {
        let (low, high) = losses
            .filter(|loss| loss.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), loss| (low.min(loss), high.max(loss)));
        // Nothing to show, or a flat line, has a height all the same.
        let (low, high) = match (low <= high, low < high) {
            (false, _) => (0.0, 1.0),
            (true, false) if low == 0.0 => (-0.5, 0.5),
            (true, false) => (low - low.abs() / 10.0, low + low.abs() / 10.0),
            (true, true) => (low, high),
        };
        if low > 0.0 && high / low >= LOG_FROM {
            return Self::Log { low: Round::below(low), high: Round::above(high) };
        }
        let step = round_step(high - low, INTERVALS);
        // What a division misses a whole number by is no step.
        let (low, high) = ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step);
        Self::Linear { low, high, step }
    }

    /// How far along the axis a value stands, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        match *self {
            Self::Linear { low, high, .. } => (value - low) / (high - low),
            Self::Log { low, high } => {
                let [low, high] = [low, high].map(|end| end.value().log10());
                (value.log10() - low) / (high - low)
            }
        }
    }

    pub(super) fn is_log(&self) -> bool {
        matches!(self, Self::Log { .. })
    }

    /// The values that have figures, ascending, with these.
    pub(super) fn figures(&self) -> Vec<(f64, String)> {
        match *self {
            Self::Linear { low, high, step } => {
                let last = ((high - low) / step + 1e-6).floor() as u32;
                let values = (0..=last).map(|n| low + f64::from(n) * step);
                let largest = low.abs().max(high.abs());
                values.map(|value| (value, figure(value, step, largest))).collect()
            }
            Self::Log { low, high } => {
                let all: Vec<Round> = (low.0..=high.0).map(Round).collect();
                if all.len() <= LOG_FIGURES {
                    return all.into_iter().map(|round| (round.value(), round.figure())).collect();
                }
                let every = (all.len() / 3).div_ceil(LOG_FIGURES) as i32;
                let shown = all.into_iter().filter(|round| round.0 % (3 * every) == 0);
                shown.map(|round| (round.value(), round.figure())).collect()
            }
        }
    }

    /// The same for counts, in thousands, millions and so on: `0`, `250k`, `1.5M`.
    pub(super) fn counts(&self) -> Vec<(f64, String)> {
        let figures = self.figures();
        let largest = figures.last().map_or(0.0, |(value, _)| *value);
        let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
        let Some((from, unit)) = units.into_iter().find(|(from, _)| largest >= *from) else { return figures };
        let scale = if unit == "k" { 1e3 } else { from };
        let short = |value: f64| {
            if value == 0.0 { "0".to_owned() } else { format!("{}{unit}", rounded(value / scale)) }
        };
        figures.into_iter().map(|(value, _)| (value, short(value))).collect()
    }
}

/// Without what is left of a division.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// 1, 2 or 5 times a power of ten, of which at most so many are in a span.
fn round_step(span: f64, intervals: f64) -> f64 {
    let least = span / intervals;
    let power = 10f64.powi(least.log10().floor() as i32);
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// A figure with as many decimals as tell it from those a step away.
fn figure(value: f64, step: f64, largest: f64) -> String {
    let power = (step * (1.0 + 1e-9)).log10().floor() as i32;
    // What a step misses zero by is nothing.
    let value = if value.abs() < step / 1e6 { 0.0 } else { value };
    match (largest < 1e6, power) {
        (true, 0..) => format!("{value:.0}"),
        (true, -6..) => format!("{value:.*}", power.unsigned_abs() as usize),
        // Small differences of figures that are not small.
        (true, -12..) if largest > 1e3 * step => format!("{value:.*}", power.unsigned_abs() as usize),
        _ => {
            let digits = (largest.log10().floor() as i32 - power).clamp(0, 8);
            format!("{value:.*e}", digits as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn words(figures: Vec<(f64, String)>) -> Vec<String> {
        figures.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn figures_of_losses_are_round_and_reach_around_all_of_them() {
        #[rustfmt::skip]
        let cases: [(&[f64], &[&str]); 10] = [
            (&[],                     &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (&[0.0, 3.0],             &["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]),
            (&[0.31, 2.3, f64::NAN],  &["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]),
            (&[90.0, 110.0],          &["90", "95", "100", "105", "110"]),
            (&[-0.5, 0.5],            &["-0.6", "-0.4", "-0.2", "0.0", "0.2", "0.4", "0.6"]),
            (&[5e-5, 8e-5],           &["0.000050", "0.000055", "0.000060", "0.000065", "0.000070", "0.000075", "0.000080"]),
            (&[1e20, 3e20],           &["1.0e20", "1.5e20", "2.0e20", "2.5e20", "3.0e20"]),
            (&[0.06, 2.3],            &["0.05", "0.1", "0.2", "0.5", "1", "2", "5"]),
            (&[0.001, 2.3],           &["0.001", "0.01", "0.1", "1"]),
            (&[2.0, 1e20],            &["100", "10000", "1e6", "1e8", "1e10", "1e12", "1e14", "1e16", "1e18", "1e20"]),
        ];
        for (losses, want) in cases {
            assert_eq!(words(Axis::of_losses(losses.iter().copied()).figures()), want, "{losses:?}");
        }
    }

    #[test]
    fn figures_differ_and_every_loss_has_its_place_however_small_or_large_it_is() {
        let spans =
            [(0.0, 1e-9), (5e-5, 8e-5), (0.0, 3.0), (1e20, 3e20), (0.5, 0.50001), (7.0, 7.0), (1e20, 1e20)];
        let more =
            [(0.0, 0.0), (-3.0, -3.0), (1e-300, 1e300), (0.0, 1e300), (-1e9, 1e9), (1.000001, 1.000002)];
        for (low, high) in spans.into_iter().chain(more) {
            let axis = Axis::of_losses([high, low].into_iter());
            let figures = words(axis.figures());
            let different: BTreeSet<&String> = figures.iter().collect();
            assert!(different.len() == figures.len() && (2..=11).contains(&figures.len()), "{figures:?}");
            for loss in [low, high] {
                let share = axis.share(loss);
                assert!((-1e-9..=1.0 + 1e-9).contains(&share), "{loss} at {share} of {axis:?}");
            }
        }
    }

    #[test]
    fn counts_are_short() {
        #[rustfmt::skip]
        let cases = [
            (0.0,         "0.0 0.2 0.4 0.6 0.8 1.0"),
            (480.0,       "0 100 200 300 400"),
            (9_600.0,     "0 2000 4000 6000 8000"),
            (57_480.0,    "0 10k 20k 30k 40k 50k"),
            (1_000_000.0, "0 200k 400k 600k 800k 1M"),
            (7_500_000.0, "0 1M 2M 3M 4M 5M 6M 7M"),
        ];
        for (most, want) in cases {
            let axis = Axis::from_zero(most);
            let want = if most == 1e6 { "0 0.2M 0.4M 0.6M 0.8M 1M" } else { want };
            assert_eq!(words(axis.counts()).join(" "), want, "{most}");
            assert!(axis.share(most) <= 1.0);
        }
    }
}
