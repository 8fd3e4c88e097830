//! How gradients become new parameters.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::suggestion::did_you_mean;

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
    /// `v = momentum * v + g + weight_decay * w`, then `w -= lr * v` (Nesterov: `w -= lr * (g' + momentum *
    /// v)`).
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
        /// Share of the mean squared gradient that stays from step to step, 0 to below 1; left out: 0.999.
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
    /// Hinton 2012 as PyTorch writes it: `s = alpha * s + (1 - alpha) * g'^2` with `g' = g + weight_decay *
    /// w`, then `w -= lr * g' / (sqrt(s) + epsilon)`. With a momentum the quotient goes into a velocity,
    /// `v = momentum * v + quotient`, along which the step is. `centered` takes the variance in place of
    /// the mean square: `a = alpha * a + (1 - alpha) * g'`, and `s - a^2`, 0 where rounding makes it
    /// less, under the root.
    #[serde(rename = "rmsprop")]
    RmsProp {
        /// Share of the mean square that stays from step to step, 0 to below 1; left out: 0.99.
        #[serde(default = "alpha")]
        alpha: f32,
        /// Added to the root that a step divides by, above 0; left out: 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f32,
        /// Share of the velocity that stays from step to step, 0 to below 1; 0: there is none.
        #[serde(default)]
        momentum: f32,
        /// Whether steps are divided by the deviation from the mean gradient; not beside a momentum.
        #[serde(default)]
        centered: bool,
        /// Share of the weight that is added to its gradient; 0: none.
        #[serde(default)]
        weight_decay: f32,
    },
}

impl Optimizer {
    /// Those that have a name, with the settings that everybody uses.
    fn named() -> [Self; 6] {
        [Self::sgd(), Self::momentum(), Self::nesterov(), Self::adam(), Self::adamw(), Self::rmsprop()]
    }

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

    /// AdamW: Adam with decoupled weight decay, PyTorch's 0.01.
    pub fn adamw() -> Self {
        let (beta1, beta2, epsilon) = (beta1(), beta2(), epsilon());
        Self::Adam { beta1, beta2, epsilon, weight_decay: 0.01, decoupled: true }
    }

    /// PyTorch's defaults: alpha 0.99, no momentum.
    pub fn rmsprop() -> Self {
        let (alpha, epsilon) = (alpha(), epsilon());
        Self::RmsProp { alpha, epsilon, momentum: 0.0, centered: false, weight_decay: 0.0 }
    }
}

/// Why a text names no optimizer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E661] `{0}` is no optimizer: expected sgd, momentum, nesterov, adam, adamw or rmsprop{meant}",
    meant = did_you_mean(.0, Optimizer::named().map(|named| named.name()))
)]
pub struct InvalidOptimizer(pub String);

impl InvalidOptimizer {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E661"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("other settings than the usual ones are fields of `Optimizer`".to_owned())
    }
}

/// By its name, with the settings that everybody uses.
impl FromStr for Optimizer {
    type Err = InvalidOptimizer;

    fn from_str(name: &str) -> Result<Self, InvalidOptimizer> {
        let named = Self::named().into_iter().find(|named| named.name() == name);
        named.ok_or_else(|| InvalidOptimizer(name.chars().take(80).collect()))
    }
}

fn alpha() -> f32 {
    0.99
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
    /// The learning rate where nobody names one: 0.1 for plain gradient descent, 0.01 with momentum, whose
    /// 0.9 makes a step ten times as long in the end, and for Adam, whose steps are as long as the rate
    /// whatever the gradients are, the 0.001 of Kingma and Ba 2015 and of PyTorch; for RMSprop its 0.01.
    pub fn default_learning_rate(&self) -> f32 {
        match self {
            Self::Sgd { .. } => 0.1,
            Self::Momentum { .. } | Self::RmsProp { .. } => 0.01,
            Self::Adam { .. } => 0.001,
        }
    }

    /// This rule with another weight decay.
    #[must_use]
    pub fn with_weight_decay(self, decay: f32) -> Self {
        let mut rule = self;
        match &mut rule {
            Self::Sgd { weight_decay }
            | Self::Momentum { weight_decay, .. }
            | Self::Adam { weight_decay, .. }
            | Self::RmsProp { weight_decay, .. } => *weight_decay = decay,
        }
        rule
    }

    /// How many numbers it remembers of each parameter.
    pub fn moments(&self) -> u64 {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::Adam { .. } => 2,
            Self::RmsProp { momentum, centered, .. } => 1 + u64::from(*centered || *momentum > 0.0),
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
            Self::RmsProp { alpha, epsilon, momentum, centered, weight_decay } => unit("alpha", alpha)
                .or_else(|| positive("epsilon", epsilon, false))
                .or_else(|| unit("momentum", momentum))
                .or_else(|| positive("weight_decay", weight_decay, true))
                .or_else(|| {
                    (centered && momentum > 0.0).then(|| {
                        format!("centered with momentum = {momentum}, expected one of them: two numbers are kept of a parameter, not three")
                    })
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_steps_of_an_optimizer_the_smaller_its_learning_rate() {
        use Optimizer as O;
        let all = [O::sgd(), O::momentum(), O::nesterov(), O::rmsprop(), O::adam(), O::adamw()];
        let rates = all.map(|optimizer| optimizer.default_learning_rate());
        assert_eq!(rates, [0.1, 0.01, 0.01, 0.01, 0.001, 0.001]);
    }

    #[test]
    fn a_name_stands_for_the_usual_settings_and_a_near_one_is_suggested() {
        for name in ["sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop"] {
            assert!(name.parse::<Optimizer>().is_ok(), "{name}");
        }
        assert_eq!("adamw".parse(), Ok(Optimizer::adamw()));
        let refused = "adm".parse::<Optimizer>().unwrap_err().to_string();
        assert!(
            refused.starts_with("[E661] `adm` is no optimizer") && refused.ends_with("did you mean `adam`?"),
            "{refused}"
        );
    }

    #[test]
    fn out_of_range_settings_are_named() {
        let bad = Optimizer::Momentum { momentum: 1.0, nesterov: false, weight_decay: 0.0 };
        assert!(bad.fault().unwrap().contains("momentum = 1"));
        assert!(Optimizer::Sgd { weight_decay: f32::NAN }.fault().is_some());
        assert_eq!(Optimizer::Sgd { weight_decay: 0.0 }.fault(), None);
        let rmsprop = |alpha, momentum, centered| Optimizer::RmsProp {
            alpha,
            epsilon: 1e-8,
            momentum,
            centered,
            weight_decay: 0.0,
        };
        assert!(rmsprop(1.0, 0.0, false).fault().unwrap().contains("alpha = 1"));
        assert!(rmsprop(0.9, 0.5, true).fault().unwrap().contains("centered with momentum = 0.5"));
        assert_eq!(
            [rmsprop(0.0, 0.9, false), rmsprop(0.9, 0.0, true)].map(|rule| rule.fault()),
            [None, None]
        );
    }

    #[test]
    fn rmsprop_keeps_a_second_number_only_for_a_momentum_or_a_mean() {
        let kept = |momentum, centered| {
            Optimizer::RmsProp { alpha: 0.9, epsilon: 1e-8, momentum, centered, weight_decay: 0.0 }.moments()
        };
        assert_eq!([kept(0.0, false), kept(0.5, false), kept(0.0, true)], [1, 2, 2]);
    }
}
