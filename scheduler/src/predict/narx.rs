//! NARX: a non-linear autoregressive network with exogenous inputs, the speed predictor of LB-BSP (Chen et
//! al., SoCC 2020).
//!
//! In: the last two times per sample and the CPU and memory loads reported with them. Out: the next time per
//! sample. One hidden layer of tanh units, trained by one gradient step per iteration. Lags, sizes and rates
//! are ours: the published abstracts do not name the paper's. The network sees logarithms of times, as
//! differences from their running mean, and each input of the older iteration as the change since then, which
//! lets plain gradient steps learn faster; a step is clipped, and divided by the squared norm of its
//! gradient, so none overshoots.
//!
//! Until the network has seen enough, and whenever its recent error is not below that of an exponential
//! moving average, the average's answer is given.

use serde::{Deserialize, Serialize};

use super::{Measurement, Predictor, simple::Ema};
use crate::samples::splitmix64;

/// Time, CPU and memory of the last iteration, their changes since the one before, and a constant.
const INPUTS: usize = 7;
const HIDDEN: usize = 6;
/// Measurements before the network is asked.
const WARM_UP: u32 = 16;
/// Weight of the newest measurement: in the average that stands in, in the mean logarithm, in the two recent
/// errors.
const EMA_ALPHA: f64 = 0.2;
const MEAN_ALPHA: f64 = 0.01;
const ERROR_ALPHA: f64 = 0.05;
/// Share of an error that one step takes away, and what keeps the step short where the gradient is small.
const RATE: f32 = 0.3;
const DAMPING: f32 = 0.5;
/// Loads change slowly beside their whole range.
const LOAD_CHANGE_GAIN: f32 = 8.0;
/// Largest deviation from the mean logarithm that is learned from or answered: a factor of twenty.
const MAX_DEVIATION: f64 = 3.0;
/// Times below are as this one: the logarithm of zero is not finite.
const LEAST_US: f64 = 1e-6;
const SEED: u64 = 0x4E41_5258;

/// One past iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Past {
    us_per_sample: f64,
    cpu_load: f32,
    memory_load: f32,
}

/// The network, what it looks back at, and the average that stands in for it. About 900 bytes of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Narx {
    seen: u32,
    /// Running mean of the logarithm of the time per sample in µs.
    mean_log: f64,
    /// The last iteration, and the one before.
    last: Option<Past>,
    before: Option<Past>,
    /// Weights of each hidden unit, and those of the output: the hidden units and a constant. Single
    /// precision, because they are stored at each report.
    hidden: [[f32; INPUTS]; HIDDEN],
    output: [f32; HIDDEN + 1],
    ema: Ema,
    /// Recent squared errors, of logarithms.
    network_error: f64,
    ema_error: f64,
}

impl Default for Narx {
    fn default() -> Self {
        let mut state = SEED;
        let unit = 1.0 / (1u64 << 53) as f32;
        let mut weight = |_| (splitmix64(&mut state) >> 11) as f32 * unit - 0.5;
        Self {
            seen: 0,
            mean_log: 0.0,
            last: None,
            before: None,
            hidden: std::array::from_fn(|_| std::array::from_fn(&mut weight)),
            output: [0.0; HIDDEN + 1], // at first every answer is the mean
            ema: Ema::new(EMA_ALPHA),
            network_error: 0.0,
            ema_error: 0.0,
        }
    }
}

/// One pass through the network, for the step that learns from it.
struct Pass {
    inputs: [f32; INPUTS],
    hidden: [f32; HIDDEN],
    /// Predicted deviation from the mean logarithm.
    output: f32,
}

impl Pass {
    /// The output, within what is answered.
    fn answer(&self) -> f64 {
        f64::from(self.output).clamp(-MAX_DEVIATION, MAX_DEVIATION)
    }
}

impl Narx {
    /// How far a time per sample is from the mean, as a logarithm.
    fn deviation(&self, us_per_sample: f64) -> f64 {
        (us_per_sample.max(LEAST_US).ln() - self.mean_log).clamp(-MAX_DEVIATION, MAX_DEVIATION)
    }

    /// Through the network; `None` before there are two iterations to look back at.
    fn forward(&self) -> Option<Pass> {
        let (last, before) = (self.last?, self.before?);
        let deviation = self.deviation(last.us_per_sample) as f32;
        let inputs = [
            deviation,
            2.0 * last.cpu_load - 1.0,
            2.0 * last.memory_load - 1.0,
            deviation - self.deviation(before.us_per_sample) as f32,
            LOAD_CHANGE_GAIN * (last.cpu_load - before.cpu_load),
            LOAD_CHANGE_GAIN * (last.memory_load - before.memory_load),
            1.0,
        ];
        let dot = |weights: &[f32], with: &[f32]| weights.iter().zip(with).map(|(w, x)| w * x).sum::<f32>();
        let mut hidden = [0.0; HIDDEN];
        for (unit, weights) in hidden.iter_mut().zip(&self.hidden) {
            *unit = dot(weights, &inputs).tanh();
        }
        let output = dot(&self.output, &hidden) + self.output[HIDDEN];
        Some(Pass { inputs, hidden, output })
    }

    /// One step towards `target`.
    fn train(&mut self, pass: &Pass, target: f32) {
        let slopes: [f32; HIDDEN] =
            std::array::from_fn(|i| self.output[i] * (1.0 - pass.hidden[i] * pass.hidden[i]));
        let square = |of: &[f32]| of.iter().map(|x| x * x).sum::<f32>();
        let norm = square(&pass.hidden) + 1.0 + square(&slopes) * square(&pass.inputs);
        let error = (target - pass.output).clamp(-1.0, 1.0);
        let step = RATE * error / (DAMPING + norm);
        for (weight, unit) in self.output.iter_mut().zip(pass.hidden.iter().chain(&[1.0])) {
            *weight += step * unit;
        }
        for (weights, slope) in self.hidden.iter_mut().zip(slopes) {
            for (weight, input) in weights.iter_mut().zip(&pass.inputs) {
                *weight += step * slope * input;
            }
        }
    }
}

/// A load as reported, or none where it is no number.
fn load(reported: f32) -> f32 {
    if reported.is_nan() { 0.0 } else { reported.clamp(0.0, 1.0) }
}

impl Predictor for Narx {
    fn observe(&mut self, measured: &Measurement) {
        let us_per_sample = measured.us_per_sample();
        if let Some(pass) = self.forward() {
            let target = self.deviation(us_per_sample);
            let ema = self.ema.us_per_sample().map_or(0.0, |us| self.deviation(us));
            self.network_error += ERROR_ALPHA * ((pass.answer() - target).powi(2) - self.network_error);
            self.ema_error += ERROR_ALPHA * ((ema - target).powi(2) - self.ema_error);
            self.train(&pass, target as f32);
        }
        self.seen = self.seen.saturating_add(1);
        let weight = MEAN_ALPHA.max(1.0 / f64::from(self.seen));
        self.mean_log += weight * (us_per_sample.max(LEAST_US).ln() - self.mean_log);
        self.ema.observe(measured);
        self.before = self.last;
        let (cpu_load, memory_load) = (load(measured.cpu_load), load(measured.memory_load));
        self.last = Some(Past { us_per_sample, cpu_load, memory_load });
    }

    fn us_per_sample(&self) -> Option<f64> {
        if self.seen < WARM_UP || self.network_error >= self.ema_error {
            return self.ema.us_per_sample();
        }
        Some((self.mean_log + self.forward()?.answer()).exp())
    }
}
