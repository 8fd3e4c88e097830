//! LB-BSP on a virtual clock: speeds are predicted, batches assigned, and a round takes as long as its
//! slowest worker.

use syncline_scheduler::{
    balance::{Bounds, Cost, assign},
    predict::{IntervalEstimator, Measurement},
    samples::splitmix64,
};

/// Samples per round.
const TOTAL: u32 = 256;
const BOUNDS: Bounds = Bounds { min: 1, max: u32::MAX };

/// Time that a sample takes on a worker of speed 1.
const US_PER_SAMPLE: f64 = 1_000.0;

/// Uniform between 0 and 1.
pub fn unit(state: &mut u64) -> f64 {
    (splitmix64(state) >> 11) as f64 / (1u64 << 53) as f64
}

/// Plays `rounds` rounds of four workers, whose speeds `speeds` knows; each iteration jitters evenly by ±
/// `jitter`. Returns how many times as long equal batches take, and the mean relative error of the
/// predictions.
fn play(predictor: &str, rounds: usize, jitter: f64, speeds: impl Fn(usize) -> [f64; 4]) -> (f64, f64) {
    let mut meters = [0; 4].map(|_| IntervalEstimator::new(predictor.parse().unwrap()));
    let (mut state, mut equal_us, mut balanced_us) = (1, 0, 0);
    for round in 0..rounds {
        let costs = meters.each_ref().map(|meter| {
            let us_per_sample = meter.samples_per_s().map_or(US_PER_SAMPLE, |speed| 1e6 / speed);
            (Cost::Proportional { us_per_sample }, BOUNDS)
        });
        let batches = assign(u64::from(TOTAL), &costs);
        assert_eq!(batches.iter().sum::<u32>(), TOTAL);
        let noise = [0; 4].map(|_| 1.0 + jitter * (2.0 * unit(&mut state) - 1.0));
        let took_us = |w: usize, samples: u32| {
            (US_PER_SAMPLE * f64::from(samples) / speeds(round)[w] * noise[w]) as u64
        };
        equal_us += (0..4).map(|w| took_us(w, TOTAL / 4)).max().unwrap();
        balanced_us += (0..4).map(|w| took_us(w, batches[w])).max().unwrap();
        for (w, meter) in meters.iter_mut().enumerate() {
            meter.observe(&Measurement {
                interval_us: took_us(w, batches[w]),
                samples: batches[w],
                cpu_load: (1.0 - speeds(round)[w]) as f32,
                memory_load: 0.5,
            });
        }
    }
    let error = meters.iter().map(|meter| meter.errors().relative_rmse).sum::<f64>() / 4.0;
    (equal_us as f64 / balanced_us as f64, error)
}

const PREDICTORS: [&str; 5] = ["last", "ema:0.2", "mean:8", "median:8", "narx"];

#[test]
fn constant_speeds_gain_what_the_formula_says() {
    for (speeds, ideal) in
        [([1.0, 1.0, 1.0, 0.5], 1.75), ([1.0, 0.9, 0.8, 0.7], 0.85 / 0.7), ([1.0, 0.75, 0.5, 0.25], 2.5)]
    {
        for predictor in PREDICTORS {
            let (gain, error) = play(predictor, 200, 0.0, |_| speeds);
            assert!((gain / ideal - 1.0).abs() < 0.05, "{predictor}: {gain} of {ideal}");
            assert!(error < 1e-3, "{predictor}: {error}");
        }
    }
}

#[test]
fn the_last_speed_follows_a_switch_at_once() {
    // Every 50 rounds another worker is at half speed.
    let switching = |round: usize| {
        let mut speeds = [1.0; 4];
        speeds[round / 50 % 4] = 0.5;
        speeds
    };
    let gains = PREDICTORS.map(|predictor| play(predictor, 2_000, 0.0, switching));
    assert!(gains[0].0 > 1.65, "{gains:?}");
    assert!(gains.iter().all(|(gain, _)| *gain > 1.3 && *gain <= gains[0].0), "{gains:?}");
}

#[test]
fn averages_gain_more_where_iterations_jitter() {
    let gains = PREDICTORS.map(|predictor| play(predictor, 2_000, 0.3, |_| [1.0, 1.0, 1.0, 0.5]));
    assert!(gains[1..].iter().all(|(gain, error)| *gain > 1.03 * gains[0].0 && *error < 0.9 * gains[0].1));
}
