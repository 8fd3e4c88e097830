//! Learns the time of a worker's iterations as a function of the batch, from what its iterations take.
//!
//! An accelerator's time is flat while the batch does not fill it, then linear (Chen et al.,
//! arXiv:1806.02508). Measurements are averaged per power of two of the batch. Of all ways to cut these
//! points into flat ones and linear ones, the fit with the least squared relative error is taken. How points
//! are kept and fitted is ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Cost;

/// Weight of the newest measurement in a point.
const ALPHA: f64 = 0.2;
/// What a point must gain in squared relative error to count as flat: five per cent. A processor's jitter
/// must not make its small batches look as slow as its large ones.
const FLAT_GAIN: f64 = 0.0025;
/// One measurement moves the other points at most as if the worker had become this much faster or slower.
const MAX_CHANGE: f64 = 2.0;

/// A worker that gets other batches now is not judged by those that it had longer ago: they may have been
/// slow for a reason that is over.
const RECENT: u32 = 256;
/// No more than this is the same for any batch: samples that cost nothing could go to whomever.
pub const MAX_FIXED_SHARE: f64 = 0.95;

/// Moving averages of the batches of one power of two and of their times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Point {
    batch: f64,
    us: f64,
    /// Iterations of other batches since the last of these.
    #[serde(default)]
    age: u32,
}

/// Stored with a worker: at most one point per power of two, usually two or three.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CurveFit {
    /// By ⌊log₂ batch⌋.
    points: BTreeMap<u8, Point>,
}

impl CurveFit {
    /// An iteration of `batch` samples took `us`. One without samples says nothing.
    ///
    /// If the batch was seen before and takes longer now, the worker has become slower: points that were not
    /// measured for long move along.
    pub fn observe(&mut self, batch: u32, us: u64) {
        let Some(bucket) = batch.checked_ilog2() else { return };
        let (bucket, batch, us) = (bucket as u8, f64::from(batch), us.max(1) as f64);
        let expected_us = self.cost().map_or(us, |cost| cost.us(batch as u32));
        for (_, other) in self.points.iter_mut().filter(|(other, _)| **other != bucket) {
            other.age = other.age.saturating_add(1);
        }
        let Some(point) = self.points.get_mut(&bucket) else {
            self.points.insert(bucket, Point { batch, us, age: 0 });
            return;
        };
        point.age = 0;
        point.batch += ALPHA * (batch - point.batch);
        point.us += ALPHA * (us - point.us);
        let change = (us / expected_us.max(1.0)).clamp(1.0 / MAX_CHANGE, MAX_CHANGE);
        for (_, other) in self.points.iter_mut().filter(|(other, _)| **other != bucket) {
            // The largest time there is keeps an endless fall of measurements finite.
            other.us = (other.us * (1.0 + ALPHA * (change - 1.0))).clamp(1.0, u64::MAX as f64);
        }
    }

    /// The curve through the points: proportional while there is only one. `None` before the first
    /// measurement.
    pub fn cost(&self) -> Option<Cost> {
        through(&self.points.values().copied().collect::<Vec<_>>())
    }

    /// The mean batch of its newest power of two, and what such a batch takes, µs.
    pub fn newest(&self) -> Option<(f64, f64)> {
        self.points.values().min_by_key(|point| point.age).map(|point| (point.batch, point.us))
    }

    /// The part of the time of such a batch that is the same for any other, from 0 to 1, by what was measured
    /// lately. `None` where that were no batches of different size.
    pub fn fixed_share(&self, batch: f64) -> Option<f64> {
        let recent: Vec<Point> = self.points.values().filter(|point| point.age < RECENT).copied().collect();
        match through(&recent)? {
            Cost::Proportional { .. } => None,
            // Where no larger batch took longer, too.
            Cost::Curve { flat_us, fixed_us, us_per_sample } => {
                let line_us = fixed_us + us_per_sample * batch;
                let is_flat = line_us <= flat_us * (1.0 + 1e-9);
                Some(if is_flat { MAX_FIXED_SHARE } else { (fixed_us / line_us).clamp(0.0, MAX_FIXED_SHARE) })
            }
        }
    }
}

/// The curve through points, by rising batch.
fn through(points: &[Point]) -> Option<Cost> {
    let last = *points.last()?;
    if points.len() == 1 {
        return Some(Cost::Proportional { us_per_sample: last.us / last.batch });
    }
    let fits = (0..points.len() - 1).filter_map(|count| {
        let (flat, linear) = points.split_at(count);
        let flat_us = flat.iter().map(|p| p.us).sum::<f64>() / count.max(1) as f64;
        let (fixed_us, us_per_sample) = line(linear)?;
        let cost = Cost::Curve { flat_us, fixed_us, us_per_sample };
        Some((error(&cost, points) + FLAT_GAIN * count as f64, cost))
    });
    let best = fits.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, cost)| cost);
    // No larger batch took longer: flat as far as was seen, and at worst proportional beyond.
    let flat_us = points.iter().map(|p| p.us).sum::<f64>() / points.len() as f64;
    let all_flat = Cost::Curve { flat_us, fixed_us: 0.0, us_per_sample: flat_us / last.batch };
    Some(best.unwrap_or(all_flat))
}

/// Sum of the squared relative errors of `cost` at the points.
fn error(cost: &Cost, points: &[Point]) -> f64 {
    points.iter().map(|p| (cost.us(p.batch.round() as u32) / p.us - 1.0).powi(2)).sum()
}

/// Least squares of relative errors: `(fixed_us, us_per_sample)` of the line through the points, if it rises.
fn line(points: &[Point]) -> Option<(f64, f64)> {
    let weights = || points.iter().map(|p| (1.0 / (p.us * p.us), p));
    let sum: f64 = weights().map(|(w, _)| w).sum();
    let batch = weights().map(|(w, p)| w * p.batch).sum::<f64>() / sum;
    let us = weights().map(|(w, p)| w * p.us).sum::<f64>() / sum;
    let covariance: f64 = weights().map(|(w, p)| w * (p.batch - batch) * (p.us - us)).sum();
    let variance: f64 = weights().map(|(w, p)| w * (p.batch - batch).powi(2)).sum();
    let us_per_sample = covariance / variance;
    let fixed_us = us - us_per_sample * batch;
    (us_per_sample > 0.0 && us_per_sample.is_finite() && fixed_us.is_finite())
        .then_some((fixed_us, us_per_sample))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Batch and ms of a GPU, as published with LBB.
    const GPU: [(u32, f64); 5] = [(2, 14.6), (8, 17.0), (16, 25.1), (64, 72.7), (256, 265.5)];

    fn learned(measured: &[(u32, f64)]) -> CurveFit {
        let mut fit = CurveFit::default();
        measured.iter().for_each(|&(batch, ms)| fit.observe(batch, (ms * 1e3) as u64));
        fit
    }

    #[test]
    fn one_batch_size_gives_a_proportional_time() {
        assert_eq!(CurveFit::default().cost(), None);
        assert_eq!(learned(&[(0, 9.0)]).cost(), None);
        let cost = learned(&[(32, 64.0), (32, 64.0)]).cost();
        assert_eq!(cost, Some(Cost::Proportional { us_per_sample: 2_000.0 }));
    }

    #[test]
    fn the_curve_of_a_gpu_is_flat_and_then_linear() {
        let cost = learned(&GPU).cost().unwrap();
        let Cost::Curve { flat_us, fixed_us, us_per_sample } = cost else { panic!("{cost:?}") };
        assert!((flat_us - 14_600.0).abs() < 1.0, "{cost:?}");
        assert!((fixed_us - 9_000.0).abs() < 500.0 && (us_per_sample - 1_000.0).abs() < 20.0, "{cost:?}");
        for (batch, ms) in GPU {
            assert!((cost.us(batch) / (ms * 1e3) - 1.0).abs() < 0.03, "{batch}: {}", cost.us(batch));
        }
    }

    #[test]
    fn a_processor_stays_linear() {
        let cost = learned(&[(8, 16.0), (32, 64.0), (128, 256.0)]).cost().unwrap();
        for batch in [1, 8, 100, 1000] {
            assert!((cost.us(batch) / (2e3 * f64::from(batch)) - 1.0).abs() < 1e-3, "{batch}: {cost:?}");
        }
    }

    #[test]
    fn where_no_batch_took_longer_nothing_is_promised_beyond() {
        let cost = learned(&[(8, 20.0), (32, 20.0), (64, 19.0)]).cost().unwrap();
        assert!((cost.us(64) - 19_667.0).abs() < 1.0 && (cost.us(128) - 39_333.0).abs() < 1.0, "{cost:?}");
    }

    #[test]
    fn a_worker_that_slows_down_takes_its_whole_curve_along() {
        let mut fit = learned(&GPU);
        (0..40).for_each(|_| fit.observe(64, 145_400));
        let cost = fit.cost().unwrap();
        for (batch, ms) in GPU {
            let ratio = cost.us(batch) / (ms * 1e3);
            assert!((ratio / 2.0 - 1.0).abs() < 0.05, "{batch}: {ratio}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_measured_the_curve_is_finite_never_falls_and_survives_json(
            measured in prop::collection::vec((any::<u32>(), 0u32..32, any::<u64>(), 0u32..64), 1..60)
        ) {
            let mut fit = CurveFit::default();
            for (batch, batch_shift, us, us_shift) in measured {
                fit.observe(batch >> batch_shift, us >> us_shift);
                let json = serde_json::to_string(&fit).unwrap();
                prop_assert_eq!(&serde_json::from_str::<CurveFit>(&json).unwrap(), &fit);
                let Some(cost) = fit.cost() else { continue };
                let us: Vec<f64> = (0..32).map(|bit| cost.us(1 << bit)).collect();
                prop_assert!(us.iter().all(|us| us.is_finite()) && us.is_sorted(), "{:?}", cost);
            }
        }
    }
}
