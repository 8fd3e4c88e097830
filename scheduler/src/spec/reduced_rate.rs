//! What evaluations have left of the learning rate of a training, for another one that goes on with it.

use serde::{Deserialize, Serialize};

use super::TrainSpec;

/// A learning rate that evaluations have reduced because nothing became better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReducedRate {
    /// That of the settings, behind the warmup and before any decay.
    pub learning_rate: f32,
    /// What all rates of its schedule are multiplied by since, below 1.
    pub multiplier: f64,
}

impl ReducedRate {
    /// Whether a training goes on with it. Where its settings have another rate, that is what it is to be
    /// trained with: so the rate of a training is changed in its middle.
    pub fn goes_on_in(&self, train: &TrainSpec) -> bool {
        self.learning_rate == train.learning_rate.base
    }

    /// Whether evaluations can have brought it.
    pub(super) fn is_possible(&self) -> bool {
        let Self { learning_rate, multiplier } = self;
        learning_rate.is_finite() && *learning_rate > 0.0 && (0.0..1.0).contains(multiplier)
    }
}

impl TrainSpec {
    /// What is left of a rate of its schedule where evaluations have multiplied it by this.
    pub fn reduced_rate(&self, rate: f32, multiplier: f64) -> f32 {
        let reduce = self.evaluate.and_then(|spec| spec.reduce_on_plateau);
        let least = reduce.map_or(0.0, |reduce| reduce.min_learning_rate);
        // A warmup or a decay may be below the bound by itself.
        ((f64::from(rate) * multiplier) as f32).max(least.min(rate))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        sim::training,
        spec::{EvaluateSpec, ReduceOnPlateau, TrainSpec},
    };

    #[test]
    fn a_rate_falls_no_further_than_to_the_bound_of_its_training_table() {
        let train = |reduce: Option<ReduceOnPlateau>| TrainSpec {
            evaluate: Some(EvaluateSpec { reduce_on_plateau: reduce, ..EvaluateSpec::every_epochs(1) }),
            ..training("bsp".parse().unwrap(), 10, 1)
        };
        let bounded = Some(ReduceOnPlateau::patience(3).min_learning_rate(0.1));
        #[rustfmt::skip]
        let cases = [
            // Rate of the schedule, what it is multiplied by; what is left of it.
            (bounded, 0.4,  1.0,   0.4),
            (bounded, 0.4,  0.5,   0.2),
            (bounded, 0.4,  0.125, 0.1),
            (bounded, 0.02, 0.5,   0.02),
            (None,    0.4,  0.125, 0.05),
        ];
        for (reduce, rate, multiplier, want) in cases {
            assert_eq!(train(reduce).reduced_rate(rate, multiplier), want, "{rate} times {multiplier}");
        }
    }
}
