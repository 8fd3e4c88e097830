//! How the steps of some parameters differ from those of the rest, such as no weight decay on biases.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Optimizer;

/// Largest factor on the learning rate.
pub const MAX_LEARNING_RATE_FACTOR: f32 = 1000.0;

/// What of a step is set for a parameter by itself. The default is what the optimizer does with all.
///
/// ```
/// # use syncline_scheduler::spec::{Optimizer, StepSettings};
/// let settings = StepSettings { weight_decay: Some(0.0), learning_rate_factor: 0.5 };
/// assert_eq!(settings.optimizer(&Optimizer::Sgd { weight_decay: 0.1 }), Optimizer::sgd());
/// assert_eq!(settings.learning_rate(0.25), 0.125);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepSettings {
    /// In place of the optimizer's weight decay; `None`: that one.
    pub weight_decay: Option<f32>,
    /// What the learning rate of each step is multiplied by, above 0 and up to [`MAX_LEARNING_RATE_FACTOR`].
    pub learning_rate_factor: f32,
}

impl Default for StepSettings {
    fn default() -> Self {
        Self { weight_decay: None, learning_rate_factor: 1.0 }
    }
}

impl StepSettings {
    /// The optimizer that makes these steps.
    pub fn optimizer(&self, of_all: &Optimizer) -> Optimizer {
        self.weight_decay.map_or(*of_all, |weight_decay| of_all.with_weight_decay(weight_decay))
    }

    /// The learning rate of a step in which that of all parameters is this.
    pub fn learning_rate(&self, of_all: f32) -> f32 {
        of_all * self.learning_rate_factor
    }

    /// The same for equal settings, and for no others.
    pub(super) fn key(&self) -> (Option<u32>, u32) {
        // Zero has two signs, and is equal to itself.
        let bits = |number: f32| (number + 0.0).to_bits();
        (self.weight_decay.map(bits), bits(self.learning_rate_factor))
    }

    /// Whether the steps are others than those of the optimizer.
    pub fn differ_from(&self, optimizer: &Optimizer) -> bool {
        self.learning_rate_factor != 1.0 || self.optimizer(optimizer) != *optimizer
    }

    /// The first setting that lies outside its range, with the range, if any.
    pub fn fault(&self) -> Option<String> {
        let factor = self.learning_rate_factor;
        if !(factor > 0.0 && factor <= MAX_LEARNING_RATE_FACTOR) {
            return Some(format!(
                "learning_rate_factor = {factor}, expected above 0 and up to {MAX_LEARNING_RATE_FACTOR}"
            ));
        }
        let decay = self.weight_decay.filter(|decay| !(decay.is_finite() && *decay >= 0.0))?;
        Some(format!("weight_decay = {decay}, expected a finite number from 0"))
    }
}

impl fmt::Display for StepSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factor = self.learning_rate_factor;
        match self.weight_decay {
            Some(decay) if factor == 1.0 => write!(f, "weight decay {decay}"),
            Some(decay) => write!(f, "weight decay {decay} and {factor} times the learning rate"),
            None => write!(f, "{factor} times the learning rate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_named() {
        let with = |weight_decay, learning_rate_factor| StepSettings { weight_decay, learning_rate_factor };
        #[rustfmt::skip]
        let cases = [
            (StepSettings::default(),        None),
            (with(Some(0.0), 1000.0),        None),
            (with(Some(0.5), f32::MIN_POSITIVE), None),
            (with(None, 0.0),                Some("learning_rate_factor = 0,")),
            (with(None, -1.0),               Some("learning_rate_factor = -1,")),
            (with(None, 1000.1),             Some("learning_rate_factor = 1000.1,")),
            (with(None, f32::NAN),           Some("learning_rate_factor = NaN,")),
            (with(None, f32::INFINITY),      Some("learning_rate_factor = inf,")),
            (with(Some(-0.1), 1.0),          Some("weight_decay = -0.1,")),
            (with(Some(f32::INFINITY), 1.0), Some("weight_decay = inf,")),
            (with(Some(f32::NAN), 1.0),      Some("weight_decay = NaN,")),
        ];
        for (settings, want) in cases {
            let fault = settings.fault();
            assert_eq!(fault.is_some(), want.is_some(), "{settings:?}: {fault:?}");
            assert!(fault.iter().all(|fault| fault.starts_with(want.unwrap())), "{fault:?}");
        }
    }

    #[test]
    fn steps_differ_where_a_number_does() {
        let adamw = Optimizer::adamw();
        #[rustfmt::skip]
        let cases = [
            (None,       1.0, false),
            (Some(0.01), 1.0, false),
            (Some(0.0),  1.0, true),
            (None,       0.1, true),
            (Some(0.01), 0.1, true),
        ];
        for (weight_decay, learning_rate_factor, differ) in cases {
            let settings = StepSettings { weight_decay, learning_rate_factor };
            assert_eq!(settings.differ_from(&adamw), differ, "{settings:?}");
        }
    }

    #[test]
    fn they_are_said_in_words() {
        #[rustfmt::skip]
        let cases = [
            (Some(0.0), 1.0, "weight decay 0"),
            (Some(0.5), 0.1, "weight decay 0.5 and 0.1 times the learning rate"),
            (None,      0.1, "0.1 times the learning rate"),
        ];
        for (weight_decay, learning_rate_factor, words) in cases {
            assert_eq!(StepSettings { weight_decay, learning_rate_factor }.to_string(), words);
        }
    }
}
