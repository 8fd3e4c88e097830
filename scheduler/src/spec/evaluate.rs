//! How often a training is evaluated while it runs, and what follows from it.

use serde::{Deserialize, Serialize};

use super::{Metric, interval};

/// Evaluations of a training while it runs: on its validation samples, or on its test samples where it has no
/// others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_epochs = 1 }")]
pub struct EvaluateSpec {
    /// Time of training from the beginning of one to the beginning of the next, in seconds, 1 or more: what
    /// the job is paused, or waits for a shard, a worker or an engine, is not part of it.
    #[serde(default)]
    pub every_s: Option<u32>,
    /// Complete epochs from one to the next, 1 or more. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<u32>,
    /// Which figure says what is better.
    #[serde(default)]
    pub monitor: Metric,
    /// The shards keep the parameters of the best evaluation, and the training hands on these in place of
    /// its last ones.
    #[serde(default)]
    pub keep_best: bool,
    /// When training ends before its epochs do.
    #[serde(default)]
    pub early_stopping: Option<EarlyStopping>,
    /// When the learning rate falls because training does not become better.
    #[serde(default)]
    pub reduce_on_plateau: Option<ReduceOnPlateau>,
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

/// Reduces the learning rate of a training that does not become better. What is better counts as for
/// [`EarlyStopping`], by more than its `min_delta` where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { patience = 3, factor = 0.1 }")]
pub struct ReduceOnPlateau {
    /// So many evaluations in a row, behind the last improvement or reduction, have to bring nothing better,
    /// 1 or more.
    pub patience: u32,
    /// The rate is multiplied by it, above 0 and below 1.
    #[serde(default = "factor")]
    pub factor: f32,
    /// It falls no further than to this, 0 or more.
    #[serde(default)]
    pub min_learning_rate: f32,
}

/// That of Keras and PyTorch.
fn factor() -> f32 {
    0.1
}

impl EvaluateSpec {
    /// One every so many seconds, 1 or more.
    pub fn every_s(seconds: u32) -> Self {
        Self { every_s: Some(seconds), ..Self::default() }
    }

    /// One whenever so many epochs are complete, 1 or more.
    ///
    /// ```
    /// # use syncline_scheduler::spec::{EarlyStopping, EvaluateSpec, Metric};
    /// let stops = EarlyStopping::patience(5).min_delta(1e-3);
    /// let spec = EvaluateSpec::every_epochs(1).monitor(Metric::Accuracy).keep_best().early_stopping(stops);
    /// assert_eq!(spec.early_stopping, Some(EarlyStopping { patience: 5, min_delta: 1e-3 }));
    /// ```
    pub fn every_epochs(epochs: u32) -> Self {
        Self { every_epochs: Some(epochs), ..Self::default() }
    }

    /// This figure says which evaluation is better.
    #[must_use]
    pub fn monitor(mut self, figure: Metric) -> Self {
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

    /// The learning rate falls where it does not become better any more.
    #[must_use]
    pub fn reduce_on_plateau(mut self, how: ReduceOnPlateau) -> Self {
        self.reduce_on_plateau = Some(how);
        self
    }

    /// Whether something is decided by what it brings.
    pub fn decides(&self) -> bool {
        self.keep_best || self.early_stopping.is_some() || self.reduce_on_plateau.is_some()
    }

    /// What is wrong with it, in words.
    pub(super) fn fault(&self) -> Option<String> {
        interval::fault(self.every_s, self.every_epochs)
            .or_else(|| self.early_stopping?.fault())
            .or_else(|| self.reduce_on_plateau?.fault())
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

impl ReduceOnPlateau {
    /// To a tenth after so many evaluations in a row that brought nothing better, 1 or more.
    pub fn patience(evaluations: u32) -> Self {
        Self { patience: evaluations, factor: factor(), min_learning_rate: 0.0 }
    }

    /// By this factor.
    #[must_use]
    pub fn factor(self, factor: f32) -> Self {
        Self { factor, ..self }
    }

    /// It falls no further than to this.
    #[must_use]
    pub fn min_learning_rate(self, min_learning_rate: f32) -> Self {
        Self { min_learning_rate, ..self }
    }

    /// What the rates of a schedule with this `learning_rate` are multiplied by after one more reduction. The
    /// bound is in it: a training that goes on with it may have no bound, or a lower one.
    pub(crate) fn reduce(&self, multiplier: f64, learning_rate: f32) -> f64 {
        let least = f64::from(self.min_learning_rate) / f64::from(learning_rate);
        (multiplier * f64::from(self.factor)).max(least.min(multiplier))
    }

    fn fault(&self) -> Option<String> {
        let Self { patience, factor, min_learning_rate } = self;
        if let Some(what) = interval::below_one("patience", Some(*patience)) {
            return Some(what);
        }
        if !(*factor > 0.0 && *factor < 1.0) {
            return Some(format!("factor {factor}, expected one above 0 and below 1"));
        }
        let is_fine = min_learning_rate.is_finite() && *min_learning_rate >= 0.0;
        (!is_fine).then(|| format!("min_learning_rate {min_learning_rate}, expected a number from 0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplier_falls_by_its_factor_and_no_further_than_to_its_bound_table() {
        let reduce = ReduceOnPlateau::patience(3).factor(0.5).min_learning_rate(0.125);
        #[rustfmt::skip]
        let cases = [
            // The learning rate, reductions; what it is multiplied by then.
            (0.5,    0, 1.0),
            (0.5,    1, 0.5),
            (0.5,    2, 0.25),
            (0.5,    9, 0.25),
            (0.1875, 1, 2.0 / 3.0),
            (0.0625, 1, 1.0),
        ];
        for (rate, reductions, want) in cases {
            let got = (0..reductions).fold(1.0, |multiplier, _| reduce.reduce(multiplier, rate));
            assert_eq!(got, want, "{rate}, {reductions} times");
        }
        // What another training has reached below the bound is not raised by a reduction.
        assert_eq!(reduce.reduce(0.2, 0.5), 0.2);
        let spec = |reduce| EvaluateSpec::every_epochs(1).reduce_on_plateau(reduce).fault();
        assert_eq!(spec(reduce), None);
        for (wrong, words) in [
            (ReduceOnPlateau::patience(0), "patience is 0, expected a whole number from 1"),
            (reduce.factor(0.0), "factor 0, expected one above 0 and below 1"),
            (reduce.factor(1.0), "factor 1, expected"),
            (reduce.factor(f32::NAN), "factor NaN, expected"),
            (reduce.min_learning_rate(-1.0), "min_learning_rate -1, expected a number from 0"),
            (reduce.min_learning_rate(f32::INFINITY), "min_learning_rate inf, expected"),
        ] {
            assert!(spec(wrong).unwrap().starts_with(words), "{wrong:?}");
        }
    }

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
