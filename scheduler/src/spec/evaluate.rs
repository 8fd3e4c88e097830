//! How often a training is evaluated while it runs, and what follows from it.

use serde::{Deserialize, Serialize};

use super::interval;

/// Evaluations of a training while it runs: on its validation samples, or on its test samples where it has no others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_epochs = 1 }")]
pub struct EvaluateSpec {
    /// Time from the begin of one to the begin of the next, in seconds, 1 or more.
    #[serde(default)]
    pub every_s: Option<u32>,
    /// Complete epochs from one to the next, 1 or more. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<u32>,
    /// Which figure says what is better.
    #[serde(default)]
    pub monitor: Monitor,
    /// The shards keep the parameters of the best evaluation, and the training hands on these in place of its last ones.
    #[serde(default)]
    pub keep_best: bool,
    /// When training ends before its epochs do.
    #[serde(default)]
    pub early_stopping: Option<EarlyStopping>,
}

/// A figure of an evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Monitor {
    /// Less is better.
    #[default]
    Loss,
    /// The share of the predictions that are right; more is better.
    Accuracy,
}

impl Monitor {
    /// By how much `figure` is better than `other`; below 0 if it is worse.
    pub fn gain(self, figure: f64, other: f64) -> f64 {
        match self {
            Self::Loss => other - figure,
            Self::Accuracy => figure - other,
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
        }
    }
}

/// Ends a training that does not become better any more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { patience = 5 }")]
pub struct EarlyStopping {
    /// So many evaluations in a row have to bring nothing better, 1 or more.
    pub patience: u32,
    /// What is better by no more than this counts as no better.
    #[serde(default)]
    pub min_delta: f64,
}

impl EvaluateSpec {
    /// One every so many seconds, 1 or more.
    pub fn every_s(seconds: u32) -> Self {
        Self { every_s: Some(seconds), ..Self::default() }
    }

    /// One whenever so many epochs are complete, 1 or more.
    ///
    /// ```
    /// use syncline_scheduler::spec::{EarlyStopping, EvaluateSpec, Monitor};
    /// let stops = EarlyStopping::patience(5).min_delta(1e-3);
    /// let spec = EvaluateSpec::every_epochs(1).monitor(Monitor::Accuracy).keep_best().early_stopping(stops);
    /// assert_eq!(spec.early_stopping, Some(EarlyStopping { patience: 5, min_delta: 1e-3 }));
    /// ```
    pub fn every_epochs(epochs: u32) -> Self {
        Self { every_epochs: Some(epochs), ..Self::default() }
    }

    /// This figure says which evaluation is better.
    #[must_use]
    pub fn monitor(mut self, figure: Monitor) -> Self {
        self.monitor = figure;
        self
    }

    /// The training hands on the parameters of its best evaluation.
    #[must_use]
    pub fn keep_best(mut self) -> Self {
        self.keep_best = true;
        self
    }

    /// Training ends once it does not become better any more.
    #[must_use]
    pub fn early_stopping(mut self, when: EarlyStopping) -> Self {
        self.early_stopping = Some(when);
        self
    }

    /// Whether something is decided by what it brings.
    pub fn decides(&self) -> bool {
        self.keep_best || self.early_stopping.is_some()
    }

    /// What is wrong with it, in words.
    pub(super) fn fault(&self) -> Option<String> {
        interval::fault(self.every_s, self.every_epochs).or_else(|| self.early_stopping?.fault())
    }

    /// Whether one is due so long and so many complete epochs after the last.
    pub(crate) fn is_due(&self, elapsed_us: u64, epochs: u32) -> bool {
        interval::is_over(self.every_s, self.every_epochs, elapsed_us, epochs)
    }
}

impl EarlyStopping {
    /// After so many evaluations in a row that brought nothing better, 1 or more.
    pub fn patience(evaluations: u32) -> Self {
        Self { patience: evaluations, min_delta: 0.0 }
    }

    /// What is better by no more than this counts as no better.
    #[must_use]
    pub fn min_delta(self, min_delta: f64) -> Self {
        Self { min_delta, ..self }
    }

    fn fault(&self) -> Option<String> {
        interval::below_one("patience", Some(self.patience)).or_else(|| {
            let is_fine = self.min_delta.is_finite() && self.min_delta >= 0.0;
            (!is_fine).then(|| format!("min_delta {}, expected a number from 0", self.min_delta))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_of_none_and_a_negative_delta_are_refused() {
        let with = |patience, min_delta| EvaluateSpec {
            early_stopping: Some(EarlyStopping { patience, min_delta }),
            ..EvaluateSpec::every_epochs(1)
        };
        assert_eq!(with(1, 0.0).fault(), None);
        assert_eq!(with(0, 0.0).fault().unwrap(), "patience is 0, expected a whole number from 1");
        for min_delta in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(with(3, min_delta).fault().unwrap().starts_with("min_delta "), "{min_delta}");
        }
    }
}
