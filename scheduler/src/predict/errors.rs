//! How wrong predictions were.

use serde::{Deserialize, Serialize};

/// Errors of a worker's predictions, each against the iteration it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PredictionErrors {
    /// Predictions compared.
    pub count: u64,
    /// Root of the mean squared error.
    pub rmse_us: f64,
    /// Mean of predicted − actual: above zero where predictions are too long.
    pub bias_us: f64,
    /// Root of the mean squared (predicted − actual) / actual.
    pub relative_rmse: f64,
}

/// Running means from which [`PredictionErrors`] are told.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct ErrorMeans {
    count: u64,
    square_us2: f64,
    bias_us: f64,
    relative_square: f64,
}

impl ErrorMeans {
    /// An iteration was predicted and measured; one of no time counts as 1 µs where it divides.
    pub fn add(&mut self, predicted_us: u64, actual_us: u64) {
        self.count += 1;
        let weight = 1.0 / self.count as f64;
        let error_us = predicted_us as f64 - actual_us as f64;
        let relative = error_us / actual_us.max(1) as f64;
        self.square_us2 += weight * (error_us * error_us - self.square_us2);
        self.bias_us += weight * (error_us - self.bias_us);
        self.relative_square += weight * (relative * relative - self.relative_square);
    }

    pub fn summary(&self) -> PredictionErrors {
        PredictionErrors {
            count: self.count,
            rmse_us: self.square_us2.max(0.0).sqrt(),
            bias_us: self.bias_us,
            relative_rmse: self.relative_square.max(0.0).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_three_predictions() {
        let mut means = ErrorMeans::default();
        assert_eq!(means.summary(), PredictionErrors::default());
        for (predicted_us, actual_us) in [(100, 100), (130, 100), (160, 200)] {
            means.add(predicted_us, actual_us);
        }
        let told = means.summary();
        assert_eq!(told.count, 3);
        assert!((told.rmse_us - ((900.0 + 1600.0) / 3.0_f64).sqrt()).abs() < 1e-9, "{told:?}");
        assert!((told.bias_us - -10.0 / 3.0).abs() < 1e-9, "{told:?}");
        assert!((told.relative_rmse - ((0.09 + 0.04) / 3.0_f64).sqrt()).abs() < 1e-9, "{told:?}");
    }
}
