//! By what models are compared: the one list of figures that an evaluation may measure.

use std::str::FromStr;

use serde::{Deserialize, Serialize, de::IntoDeserializer};

/// A figure of an evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The mean over the samples, each by its weight; less is better.
    #[default]
    Loss,
    /// The share of the predictions that are right; more is better.
    Accuracy,
    /// The mean of the F1 scores of all classes; more is better.
    MacroF1,
    /// The mean of the precision of all classes; more is better.
    MacroPrecision,
    /// The mean of the recall of all classes; more is better.
    MacroRecall,
    /// The F1 score of the positive one of two classes; more is better.
    PositiveF1,
    /// The precision of the positive one of two classes; more is better.
    PositivePrecision,
    /// The recall of the positive one of two classes; more is better.
    PositiveRecall,
    /// The share of the labels that are among the k best scores; more is better.
    TopKAccuracy,
    /// exp of the mean negative log-likelihood; less is better.
    Perplexity,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Loss,
        Self::Accuracy,
        Self::TopKAccuracy,
        Self::Perplexity,
        Self::MacroF1,
        Self::MacroPrecision,
        Self::MacroRecall,
        Self::PositiveF1,
        Self::PositivePrecision,
        Self::PositiveRecall,
    ];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::TopKAccuracy => "top-k-accuracy",
            Self::Perplexity => "perplexity",
            Self::MacroF1 => "macro-f1",
            Self::MacroPrecision => "macro-precision",
            Self::MacroRecall => "macro-recall",
            Self::PositiveF1 => "positive-f1",
            Self::PositivePrecision => "positive-precision",
            Self::PositiveRecall => "positive-recall",
        }
    }

    /// What its value is called among other fields.
    pub fn field(self) -> String {
        self.name().replace('-', "_")
    }

    /// What a model costs that has this value: the less, the better it is.
    pub fn cost(self, value: f64) -> f64 {
        match self {
            Self::Loss | Self::Perplexity => value,
            Self::Accuracy
            | Self::TopKAccuracy
            | Self::MacroF1
            | Self::MacroPrecision
            | Self::MacroRecall
            | Self::PositiveF1
            | Self::PositivePrecision
            | Self::PositiveRecall => -value,
        }
    }

    /// By how much `value` is better than `other`; below 0 if it is worse.
    pub fn gain(self, value: f64, other: f64) -> f64 {
        self.cost(other) - self.cost(value)
    }
}

/// As in a job file, where an unknown name is answered with all of them.
impl FromStr for Metric {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::deserialize(name.into_deserializer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_read_by_its_name_and_an_unknown_name_tells_all() {
        let told = "f1".parse::<Metric>().unwrap_err().to_string();
        for metric in Metric::ALL {
            let name = metric.name();
            assert_eq!(name.parse(), Ok(metric));
            assert!(told.contains(&format!("`{name}`")), "{name}: {told}");
        }
    }

    #[test]
    fn of_losses_and_perplexity_less_is_better_and_of_all_others_more_table() {
        for metric in Metric::ALL {
            let is_better_when_less = matches!(metric.name(), "loss" | "perplexity");
            let gain = metric.gain(0.25, 0.75);
            assert_eq!(gain, if is_better_when_less { 0.5 } else { -0.5 }, "{metric:?}");
            assert_eq!(metric.cost(0.25) < metric.cost(0.75), is_better_when_less, "{metric:?}");
        }
    }
}
