//! How gradients become new parameters, and how the learning rate moves with the samples seen.

use serde::{Deserialize, Serialize};

/// The update rule, applied elementwise on the parameter server to each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Optimizer {
    /// `w -= lr * (g + weight_decay * w)`
    Sgd {
        /// Share of the weight that is added to its gradient; 0: none.
        #[serde(default)]
        weight_decay: f32,
    },
    /// `v = momentum * v + g + weight_decay * w`, then `w -= lr * v` (Nesterov: `w -= lr * (g' + momentum * v)`).
    Momentum {
        /// Share of the velocity that stays from step to step, 0 to below 1.
        momentum: f32,
        /// Whether a step looks ahead by the velocity.
        #[serde(default)]
        nesterov: bool,
        /// Share of the weight that is added to its gradient; 0: none.
        #[serde(default)]
        weight_decay: f32,
    },
    /// Kingma and Ba 2015 with bias correction. `decoupled` subtracts the decay from the weight (AdamW).
    Adam {
        /// Share of the mean gradient that stays from step to step, 0 to below 1; left out: 0.9.
        #[serde(default = "beta1")]
        beta1: f32,
        /// The same of the mean squared gradient; left out: 0.999.
        #[serde(default = "beta2")]
        beta2: f32,
        /// Added to the root of the mean square that a step divides by, above 0; left out: 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f32,
        /// Share of the weight that is added to its gradient, or subtracted from the weight; 0: none.
        #[serde(default)]
        weight_decay: f32,
        /// Whether the decay bypasses both means.
        #[serde(default)]
        decoupled: bool,
    },
}

impl Optimizer {
    /// Plain gradient descent.
    pub fn sgd() -> Self {
        Self::Sgd { weight_decay: 0.0 }
    }

    /// Momentum 0.9.
    pub fn momentum() -> Self {
        Self::Momentum { momentum: 0.9, nesterov: false, weight_decay: 0.0 }
    }

    /// Nesterov's momentum 0.9.
    pub fn nesterov() -> Self {
        Self::Momentum { momentum: 0.9, nesterov: true, weight_decay: 0.0 }
    }

    /// The constants of Kingma and Ba.
    pub fn adam() -> Self {
        let (beta1, beta2, epsilon) = (beta1(), beta2(), epsilon());
        Self::Adam { beta1, beta2, epsilon, weight_decay: 0.0, decoupled: false }
    }

    /// The same with PyTorch's weight decay.
    pub fn adamw() -> Self {
        let (beta1, beta2, epsilon) = (beta1(), beta2(), epsilon());
        Self::Adam { beta1, beta2, epsilon, weight_decay: 0.01, decoupled: true }
    }
}

fn beta1() -> f32 {
    0.9
}

fn beta2() -> f32 {
    0.999
}

fn epsilon() -> f32 {
    1e-8
}

impl Optimizer {
    /// How many numbers it remembers of each parameter.
    pub fn moments(&self) -> u64 {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::Adam { .. } => 2,
        }
    }

    /// The first setting that lies outside its range, with the range, if any.
    pub fn fault(&self) -> Option<String> {
        let unit = |name: &str, x: f32| {
            (!(0.0..1.0).contains(&x)).then(|| format!("{name} = {x}, expected 0 to below 1"))
        };
        let positive = |name: &str, x: f32, low_ok: bool| {
            (!(x.is_finite() && (x > 0.0 || low_ok && x == 0.0)))
                .then(|| format!("{name} = {x}, expected a positive number"))
        };
        match *self {
            Self::Sgd { weight_decay } => positive("weight_decay", weight_decay, true),
            Self::Momentum { momentum, weight_decay, .. } => {
                unit("momentum", momentum).or_else(|| positive("weight_decay", weight_decay, true))
            }
            Self::Adam { beta1, beta2, epsilon, weight_decay, .. } => unit("beta1", beta1)
                .or_else(|| unit("beta2", beta2))
                .or_else(|| positive("epsilon", epsilon, false))
                .or_else(|| positive("weight_decay", weight_decay, true)),
        }
    }
}

/// Learning rate as a function of the samples applied so far. Never of pushes: with n workers these come
/// n times as often under ASP as under BSP, and the published comparisons went wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// The rate at the first sample, above 0.
    pub base: f32,
    /// How it goes down from there.
    #[serde(default)]
    pub decay: Decay,
}

/// Shape of the decay over the whole job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// None: `base` from the first sample to the last.
    #[default]
    Constant,
    /// Half a cosine from `base` to zero over the job's samples.
    Cosine,
}

impl LearningRate {
    /// The rate at `samples` of `total` planned samples.
    pub fn at(&self, samples: u64, total: u64) -> f32 {
        match self.decay {
            Decay::Constant => self.base,
            Decay::Cosine => {
                let done = samples.min(total) as f64 / total.max(1) as f64;
                (f64::from(self.base) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())) as f32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_starts_at_base_halves_in_the_middle_and_ends_at_zero() {
        let rate = LearningRate { base: 0.4, decay: Decay::Cosine };
        for (samples, want) in [(0, 0.4), (500, 0.2), (1000, 0.0), (2000, 0.0)] {
            assert!((rate.at(samples, 1000) - want).abs() < 1e-6, "at {samples}");
        }
    }

    #[test]
    fn out_of_range_settings_are_named() {
        let bad = Optimizer::Momentum { momentum: 1.0, nesterov: false, weight_decay: 0.0 };
        assert!(bad.fault().unwrap().contains("momentum = 1"));
        assert!(Optimizer::Sgd { weight_decay: f32::NAN }.fault().is_some());
        assert_eq!(Optimizer::Sgd { weight_decay: 0.0 }.fault(), None);
    }
}
