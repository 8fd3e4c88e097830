//! The predictors that only remember: the last interval, and averages of recent ones.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Measurement, Predictor};

/// The next iteration is as the last one. In whole µs: for the same batch the last interval itself comes
/// back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Last {
    /// Interval in µs, and samples.
    last: Option<(u64, u32)>,
}

impl Predictor for Last {
    fn observe(&mut self, measured: &Measurement) {
        self.last = Some((measured.interval_us, measured.samples.max(1)));
    }

    fn us_per_sample(&self) -> Option<f64> {
        self.last.map(|(interval_us, samples)| interval_us as f64 / f64::from(samples))
    }

    fn interval_us(&self, samples: u32) -> Option<u64> {
        let (interval_us, of) = self.last?;
        let scaled = u128::from(interval_us) * u128::from(samples) / u128::from(of);
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// Exponential moving average of the time per sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ema {
    alpha: f64,
    us_per_sample: Option<f64>,
}

impl Ema {
    /// The newest measurement weighs `alpha`, in (0, 1].
    pub fn new(alpha: f64) -> Self {
        Self { alpha, us_per_sample: None }
    }
}

impl Predictor for Ema {
    fn observe(&mut self, measured: &Measurement) {
        let new = measured.us_per_sample();
        let old = self.us_per_sample.unwrap_or(new);
        self.us_per_sample = Some(old + self.alpha * (new - old));
    }

    fn us_per_sample(&self) -> Option<f64> {
        self.us_per_sample
    }
}

/// The newest times per sample, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Recent {
    count: u32,
    us_per_sample: VecDeque<f64>,
}

impl Recent {
    fn push(&mut self, measured: &Measurement) {
        if self.us_per_sample.len() >= self.count as usize {
            self.us_per_sample.pop_front();
        }
        self.us_per_sample.push_back(measured.us_per_sample());
    }
}

/// Mean time per sample of the last few iterations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mean(Recent);

impl Mean {
    /// Of the last `count`.
    pub fn new(count: u32) -> Self {
        Self(Recent { count, us_per_sample: VecDeque::new() })
    }
}

impl Predictor for Mean {
    fn observe(&mut self, measured: &Measurement) {
        self.0.push(measured);
    }

    fn us_per_sample(&self) -> Option<f64> {
        let recent = &self.0.us_per_sample;
        (!recent.is_empty()).then(|| recent.iter().sum::<f64>() / recent.len() as f64)
    }
}

/// Median time per sample of the last few iterations: one outlier does not move it far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Median(Recent);

impl Median {
    /// Of the last `count`.
    pub fn new(count: u32) -> Self {
        Self(Recent { count, us_per_sample: VecDeque::new() })
    }
}

impl Predictor for Median {
    fn observe(&mut self, measured: &Measurement) {
        self.0.push(measured);
    }

    /// Cost O(K log K).
    fn us_per_sample(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.0.us_per_sample.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (lower, upper) = (sorted.get(sorted.len().saturating_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
        Some((lower + upper) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(mut predictor: impl Predictor, intervals_us: &[u64]) -> Option<u64> {
        for &interval_us in intervals_us {
            predictor.observe(&Measurement { interval_us, samples: 10, cpu_load: 0.0, memory_load: 0.0 });
        }
        predictor.interval_us(10)
    }

    #[test]
    fn predictions_table() {
        #[rustfmt::skip]
        let cases: &[(&[u64], [Option<u64>; 4])] = &[
            // measured                 last       ema:0.5    mean:3     median:3
            (&[],                      [None,      None,      None,      None]),
            (&[100],                   [Some(100), Some(100), Some(100), Some(100)]),
            (&[100, 200],              [Some(200), Some(150), Some(150), Some(150)]),
            (&[100, 200, 900],         [Some(900), Some(525), Some(400), Some(200)]),
            (&[100, 200, 900, 400],    [Some(400), Some(463), Some(500), Some(400)]),
        ];
        for (measured, want) in cases {
            let got = [
                after(Last::default(), measured),
                after(Ema::new(0.5), measured),
                after(Mean::new(3), measured),
                after(Median::new(3), measured),
            ];
            assert_eq!(got, *want, "{measured:?}");
        }
    }

    #[test]
    fn the_last_interval_comes_back_to_the_microsecond_and_scales_with_the_batch() {
        let mut last = Last::default();
        last.observe(&Measurement { interval_us: u64::MAX - 1, samples: 7, cpu_load: 0.0, memory_load: 0.0 });
        assert_eq!(last.interval_us(7), Some(u64::MAX - 1));
        assert_eq!(last.interval_us(14), Some(u64::MAX));
        last.observe(&Measurement { interval_us: 1_001, samples: 2, cpu_load: 0.0, memory_load: 0.0 });
        assert_eq!(last.interval_us(3), Some(1_501));
        assert_eq!(last.interval_us(0), Some(0));
    }
}
