//! What a model is worth on samples that it is not trained on: sums over parts of them, and the means of it all.

use serde::{Deserialize, Serialize};

use super::{json_number, significant::significant};
use crate::spec::Monitor;

/// Samples that nothing is trained on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationSet {
    /// They say what has come of a training.
    #[default]
    Test,
    /// They say how a training goes, and decide when it ends and with which parameters.
    Validation,
}

impl EvaluationSet {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Validation => "validation",
        }
    }
}

/// Which of the test or validation samples a worker computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluationPart {
    /// From 0.
    pub index: u32,
    /// So many parts there are, at least 1.
    pub of: u32,
    /// What it is a part of.
    #[serde(default)]
    pub set: EvaluationSet,
}

impl EvaluationPart {
    /// All test samples.
    pub const WHOLE_TEST: Self = Self { index: 0, of: 1, set: EvaluationSet::Test };
}

/// Sums over some of the samples of a set. A metric that the model's graph does not compute is `None`, and so it is for a worker that had
/// none of the samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationSums {
    /// Samples that they were computed on.
    pub samples: u64,
    /// Of the losses, each by its weight. Not finite where the training has come to nothing.
    #[serde(with = "json_number")]
    pub loss: f64,
    /// Of the weights.
    #[serde(with = "json_number")]
    pub weight: f64,
    /// Predictions: one a sample, unless labels may be ignored or a sample has several.
    #[serde(with = "json_number")]
    pub predictions: f64,
    /// Predictions that are right.
    #[serde(default, with = "json_number::option")]
    pub correct: Option<f64>,
    /// Predictions of which the label is among the k best scores.
    #[serde(default, with = "json_number::option")]
    pub correct_top: Option<f64>,
    /// Of the negative log-likelihoods, each by its weight.
    #[serde(default, with = "json_number::option")]
    pub log_perplexity: Option<f64>,
}

impl EvaluationSums {
    /// Those of both parts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (one, None) | (None, one) => one,
        };
        Self {
            samples: self.samples + other.samples,
            loss: self.loss + other.loss,
            weight: self.weight + other.weight,
            predictions: self.predictions + other.predictions,
            correct: both(self.correct, other.correct),
            correct_top: both(self.correct_top, other.correct_top),
            log_perplexity: both(self.log_perplexity, other.log_perplexity),
        }
    }

    /// The means. Nothing is known of what no sample had any weight in.
    pub fn mean(&self) -> Evaluation {
        let mean = |sum: f64| sum / self.weight.max(f64::MIN_POSITIVE);
        // A model that gives no numbers is right nowhere, though the first class is the largest of NaN and NaN.
        let share = |correct: &f64| {
            (self.predictions > 0.0 && !self.loss.is_nan()).then_some(correct / self.predictions)
        };
        Evaluation {
            loss: mean(self.loss),
            accuracy: self.correct.as_ref().and_then(share),
            top_k_accuracy: self.correct_top.as_ref().and_then(share),
            perplexity: self.log_perplexity.filter(|_| self.weight > 0.0).map(|sum| mean(sum).exp()),
            samples: self.samples,
        }
    }
}

/// What a model is worth on the samples of a set. A metric that its graph does not compute is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Weighted mean. Not finite where the training has come to nothing.
    #[serde(with = "json_number")]
    pub loss: f64,
    /// Share of the predictions that are right.
    #[serde(default, with = "json_number::option")]
    pub accuracy: Option<f64>,
    /// Share of the labels that are among the k best scores.
    #[serde(default, with = "json_number::option")]
    pub top_k_accuracy: Option<f64>,
    /// exp of the mean negative log-likelihood.
    #[serde(default, with = "json_number::option")]
    pub perplexity: Option<f64>,
    /// Samples that it was computed on.
    pub samples: u64,
}

impl Evaluation {
    /// As summaries and events show it.
    pub fn fields(&self, set: EvaluationSet) -> Vec<(&'static str, String)> {
        let [loss, samples, accuracy, top_k_accuracy, perplexity] = match set {
            EvaluationSet::Test => {
                ["test_loss", "test_samples", "test_accuracy", "test_top_k_accuracy", "test_perplexity"]
            }
            EvaluationSet::Validation => [
                "validation_loss",
                "validation_samples",
                "validation_accuracy",
                "validation_top_k_accuracy",
                "validation_perplexity",
            ],
        };
        let mut fields = vec![(loss, significant(self.loss)), (samples, self.samples.to_string())];
        let metrics =
            [(accuracy, self.accuracy), (top_k_accuracy, self.top_k_accuracy), (perplexity, self.perplexity)];
        fields.extend(metrics.into_iter().filter_map(|(name, value)| Some((name, significant(value?)))));
        fields
    }

    /// The figure that says what is better; `None` if it is no number, or the graph computes none.
    pub(super) fn figure(&self, monitor: Monitor) -> Option<f64> {
        let figure = match monitor {
            Monitor::Loss => Some(self.loss),
            Monitor::Accuracy => self.accuracy,
        };
        figure.filter(|figure| figure.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(samples: u64, loss: f64, weight: f64, correct: f64, log_perplexity: f64) -> EvaluationSums {
        let (correct, correct_top) = (Some(correct), Some(correct + 1.0));
        let log_perplexity = Some(log_perplexity);
        EvaluationSums { samples, loss, weight, predictions: 4.0, correct, correct_top, log_perplexity }
    }

    #[test]
    fn parts_count_by_their_weight_and_metrics_by_their_predictions() {
        let nothing = EvaluationSums::default();
        let parts = [part(2, 3.0, 3.0, 2.0, 0.0), nothing, part(2, 5.0, 1.0, 1.0, 16f64.ln())];
        let got = parts.iter().fold(EvaluationSums::default(), |all, part| all.plus(part)).mean();
        assert_eq!((got.samples, got.loss), (4, 2.0));
        assert_eq!((got.accuracy, got.top_k_accuracy), (Some(3.0 / 8.0), Some(5.0 / 8.0)));
        assert!((got.perplexity.unwrap() - 2.0).abs() < 1e-12, "16^(1/4)");
    }

    #[test]
    fn a_model_that_gives_no_numbers_is_right_nowhere() {
        let got = part(8, f64::NAN, 8.0, 4.0, f64::NAN).mean();
        assert_eq!((got.loss.is_nan(), got.accuracy, got.top_k_accuracy), (true, None, None));
    }

    #[test]
    fn what_no_sample_had_any_weight_in_is_not_known() {
        let sums = EvaluationSums { predictions: 0.0, ..part(8, 0.0, 0.0, 0.0, 0.0) };
        assert_eq!(sums.mean(), Evaluation { samples: 8, ..Evaluation::default() });
        let plain = EvaluationSums { samples: 8, loss: 12.0, weight: 8.0, ..EvaluationSums::default() };
        assert_eq!(plain.mean(), Evaluation { loss: 1.5, samples: 8, ..Evaluation::default() });
    }

    #[test]
    fn sums_that_are_no_numbers_come_back_from_the_store() {
        let sums = part(8, f64::NAN, f64::INFINITY, 1.0, f64::NEG_INFINITY);
        let back: EvaluationSums = serde_json::from_str(&serde_json::to_string(&sums).unwrap()).unwrap();
        assert!(back.loss.is_nan() && back.weight == f64::INFINITY, "{back:?}");
        assert_eq!(back.log_perplexity, Some(f64::NEG_INFINITY));
    }
}
