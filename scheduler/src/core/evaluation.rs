//! What a model is worth on samples that it is not trained on: sums over parts of them, and the means of it
//! all.

use serde::{Deserialize, Serialize};

use super::{json_number, significant::significant};
use crate::spec::Metric;

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

    /// As summaries show an evaluation on these samples: every figure; empty where it has none, or there is
    /// none.
    pub(super) fn fields(self, evaluation: Option<&Evaluation>) -> Vec<(&'static str, String)> {
        let name = |[test, validation]: [&'static str; 2]| match self {
            Self::Test => test,
            Self::Validation => validation,
        };
        type Figure = fn(&Evaluation) -> Option<f64>;
        let metrics: [([&'static str; 2], Figure); 9] = [
            (["test_accuracy", "validation_accuracy"], |e| e.accuracy),
            (["test_top_k_accuracy", "validation_top_k_accuracy"], |e| e.top_k_accuracy),
            (["test_perplexity", "validation_perplexity"], |e| e.perplexity),
            (["test_macro_f1", "validation_macro_f1"], |e| e.macro_f1),
            (["test_macro_precision", "validation_macro_precision"], |e| e.macro_precision),
            (["test_macro_recall", "validation_macro_recall"], |e| e.macro_recall),
            (["test_positive_f1", "validation_positive_f1"], |e| e.positive_f1),
            (["test_positive_precision", "validation_positive_precision"], |e| e.positive_precision),
            (["test_positive_recall", "validation_positive_recall"], |e| e.positive_recall),
        ];
        let figure = |of: Figure| evaluation.and_then(of).map(significant).unwrap_or_default();
        let samples = evaluation.map(|e| e.samples.to_string()).unwrap_or_default();
        let mut fields = vec![
            (name(["test_loss", "validation_loss"]), figure(|e| Some(e.loss))),
            (name(["test_samples", "validation_samples"]), samples),
        ];
        fields.extend(metrics.into_iter().map(|(names, of)| (name(names), figure(of))));
        fields
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

/// Of more classes nothing is counted: the counts travel, and are stored.
pub const MOST_COUNTED_CLASSES: usize = 1_000;

/// How often a class was there and was predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    /// Labels of it.
    pub labels: u64,
    /// Times that it was predicted.
    pub predicted: u64,
    /// Times that it was predicted and was the label.
    pub right: u64,
}

impl ClassCount {
    /// Share of its labels for which it was predicted, 0 to 1; `None` without labels.
    pub fn recall(&self) -> Option<f64> {
        (self.labels > 0).then(|| self.right as f64 / self.labels as f64)
    }

    /// Share of the times that it was predicted in which it was right, 0 to 1; `None` if it never was.
    pub fn precision(&self) -> Option<f64> {
        (self.predicted > 0).then(|| self.right as f64 / self.predicted as f64)
    }

    /// The harmonic mean of precision and recall; `None` where the class was neither there nor predicted.
    pub fn f1(&self) -> Option<f64> {
        let all = self.labels.saturating_add(self.predicted);
        (all > 0).then(|| 2.0 * self.right as f64 / all as f64)
    }

    /// A score of a class that was there or predicted: 0 where it has none, as scikit-learn has it.
    fn score(&self, of: fn(&Self) -> Option<f64>) -> Option<f64> {
        (self.labels > 0 || self.predicted > 0).then(|| of(self).unwrap_or(0.0))
    }

    /// Of a label that may be there or not, the other of the two classes: where it is not. `all` are the
    /// answers.
    fn absent(&self, all: u64) -> Self {
        let neither = all.saturating_add(self.right);
        Self {
            labels: all.saturating_sub(self.labels),
            predicted: all.saturating_sub(self.predicted),
            right: neither.saturating_sub(self.labels.saturating_add(self.predicted)),
        }
    }

    /// Mean of a score over the classes that were there or predicted, 0 to 1; `None` if none was.
    pub fn macro_mean(classes: &[Self], of: fn(&Self) -> Option<f64>) -> Option<f64> {
        let scores: Vec<f64> = classes.iter().filter_map(|class| class.score(of)).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// The same of labels, each of which may be there or not: of a single one over both classes, as scikit-learn
    /// has it. `absent` counts where that one is not.
    pub fn macro_mean_of_labels(
        labels: &[Self],
        absent: impl FnOnce(&Self) -> Self,
        of: fn(&Self) -> Option<f64>,
    ) -> Option<f64> {
        match labels {
            [only] => Self::macro_mean(&[absent(only), *only], of),
            all => Self::macro_mean(all, of),
        }
    }
}

/// Sums over some of the samples of a set. A metric that the model's graph does not compute is `None`, and so
/// it is for a worker that had none of the samples.
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
    /// Counts of each class; none where labels are no classes, or there are too many.
    #[serde(default)]
    pub classes: Vec<ClassCount>,
    /// Each of the classes may be there or not, by itself: the counts are of where it is.
    #[serde(default)]
    pub of_labels: bool,
    /// Of these labels, so many answers were counted: a sample has one for each place, as each pixel of a
    /// mask is.
    #[serde(default)]
    pub answers: u64,
}

impl EvaluationSums {
    /// Those of both parts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (one, None) | (None, one) => one,
        };
        let class = |class: usize| {
            let of = |sums: &Self| sums.classes.get(class).copied().unwrap_or_default();
            let (one, other) = (of(self), of(other));
            ClassCount {
                labels: one.labels.saturating_add(other.labels),
                predicted: one.predicted.saturating_add(other.predicted),
                right: one.right.saturating_add(other.right),
            }
        };
        Self {
            samples: self.samples + other.samples,
            loss: self.loss + other.loss,
            weight: self.weight + other.weight,
            predictions: self.predictions + other.predictions,
            correct: both(self.correct, other.correct),
            correct_top: both(self.correct_top, other.correct_top),
            log_perplexity: both(self.log_perplexity, other.log_perplexity),
            classes: (0..self.classes.len().max(other.classes.len())).map(class).collect(),
            of_labels: self.of_labels || other.of_labels,
            answers: self.answers.saturating_add(other.answers),
        }
    }

    /// The second one of two classes, or the only one that is there or not.
    fn positive(&self) -> Option<&ClassCount> {
        match self.classes.as_slice() {
            [only] if self.of_labels => Some(only),
            [_, positive] if !self.of_labels => Some(positive),
            _ => None,
        }
    }

    /// The means. Nothing is known of what no sample had any weight in.
    pub fn mean(&self) -> Evaluation {
        let mean = |sum: f64| sum / self.weight.max(f64::MIN_POSITIVE);
        // A model that gives no numbers is right nowhere, though the first class is the largest of NaN and
        // NaN.
        let share = |correct: &f64| {
            (self.predictions > 0.0 && !self.loss.is_nan()).then_some(correct / self.predictions)
        };
        type Score = fn(&ClassCount) -> Option<f64>;
        let has_come_to_nothing = self.loss.is_nan();
        let all = |of: Score| {
            let mean = match self.of_labels {
                true => ClassCount::macro_mean_of_labels(&self.classes, |only| only.absent(self.answers), of),
                false => ClassCount::macro_mean(&self.classes, of),
            };
            mean.filter(|_| !has_come_to_nothing)
        };
        let positive =
            |of: Score| self.positive().and_then(|class| class.score(of)).filter(|_| !has_come_to_nothing);
        // 0 would be the best there can be.
        let is_known = self.weight > 0.0 || self.loss.is_nan();
        Evaluation {
            loss: if is_known { mean(self.loss) } else { f64::NAN },
            accuracy: self.correct.as_ref().and_then(share),
            top_k_accuracy: self.correct_top.as_ref().and_then(share),
            perplexity: self.log_perplexity.filter(|_| self.weight > 0.0).map(|sum| mean(sum).exp()),
            macro_f1: all(ClassCount::f1),
            macro_precision: all(ClassCount::precision),
            macro_recall: all(ClassCount::recall),
            positive_f1: positive(ClassCount::f1),
            positive_precision: positive(ClassCount::precision),
            positive_recall: positive(ClassCount::recall),
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
    /// Mean of the F1 scores of the classes that were there or predicted.
    #[serde(default, with = "json_number::option")]
    pub macro_f1: Option<f64>,
    /// Mean of the precision of these classes; one that was never predicted counts as 0.
    #[serde(default, with = "json_number::option")]
    pub macro_precision: Option<f64>,
    /// Mean of the recall of these classes; one that was never there counts as 0.
    #[serde(default, with = "json_number::option")]
    pub macro_recall: Option<f64>,
    /// F1 score of the positive one of two classes.
    #[serde(default, with = "json_number::option")]
    pub positive_f1: Option<f64>,
    /// Precision of the positive one of two classes, 0 if it was there and never predicted.
    #[serde(default, with = "json_number::option")]
    pub positive_precision: Option<f64>,
    /// Recall of the positive one of two classes, 0 if it was predicted and never there.
    #[serde(default, with = "json_number::option")]
    pub positive_recall: Option<f64>,
    /// Samples that it was computed on.
    pub samples: u64,
}

impl Evaluation {
    /// One of which no more than the figure that decides is known.
    pub(super) fn of_figure(monitor: Metric, figure: f64) -> Self {
        let unknown = Self { loss: f64::NAN, ..Self::default() };
        match monitor {
            Metric::Loss => Self { loss: figure, ..unknown },
            Metric::Accuracy => Self { accuracy: Some(figure), ..unknown },
            Metric::MacroF1 => Self { macro_f1: Some(figure), ..unknown },
            Metric::MacroPrecision => Self { macro_precision: Some(figure), ..unknown },
            Metric::MacroRecall => Self { macro_recall: Some(figure), ..unknown },
            Metric::PositiveF1 => Self { positive_f1: Some(figure), ..unknown },
            Metric::PositivePrecision => Self { positive_precision: Some(figure), ..unknown },
            Metric::PositiveRecall => Self { positive_recall: Some(figure), ..unknown },
            Metric::TopKAccuracy => Self { top_k_accuracy: Some(figure), ..unknown },
            Metric::Perplexity => Self { perplexity: Some(figure), ..unknown },
        }
    }

    /// As events show it: every figure that it has.
    pub fn fields(&self, set: EvaluationSet) -> Vec<(&'static str, String)> {
        let mut fields = set.fields(Some(self));
        fields.retain(|(_, figure)| !figure.is_empty());
        fields
    }

    /// The figure that says what is better; `None` if it is no number, or the graph computes none.
    pub(super) fn figure(&self, monitor: Metric) -> Option<f64> {
        let figure = match monitor {
            Metric::Loss => Some(self.loss),
            Metric::Accuracy => self.accuracy,
            Metric::MacroF1 => self.macro_f1,
            Metric::MacroPrecision => self.macro_precision,
            Metric::MacroRecall => self.macro_recall,
            Metric::PositiveF1 => self.positive_f1,
            Metric::PositivePrecision => self.positive_precision,
            Metric::PositiveRecall => self.positive_recall,
            Metric::TopKAccuracy => self.top_k_accuracy,
            Metric::Perplexity => self.perplexity,
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
        let sums =
            EvaluationSums { samples, loss, weight, correct, correct_top, ..EvaluationSums::default() };
        EvaluationSums { predictions: 4.0, log_perplexity, ..sums }
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
        let nothing = sums.mean();
        assert!(nothing.loss.is_nan(), "it is not the best of all");
        assert_eq!(Evaluation { loss: 0.0, ..nothing }, Evaluation { samples: 8, ..Evaluation::default() });
        let plain = EvaluationSums { samples: 8, loss: 12.0, weight: 8.0, ..EvaluationSums::default() };
        assert_eq!(plain.mean(), Evaluation { loss: 1.5, samples: 8, ..Evaluation::default() });
    }

    #[test]
    fn f1_scores_are_of_the_counts_of_all_parts_table() {
        #[rustfmt::skip]
        // Labels, predictions and right ones of each class, by part; macro F1, and that of the positive class.
        let cases: [(&str, bool, &[&[(u64, u64, u64)]], Option<f64>, Option<f64>); 6] = [
            ("two classes, two parts", false, &[&[(3, 2, 2), (1, 2, 1)], &[(1, 2, 0), (3, 2, 2)]],  Some((4.0 / 8.0 + 6.0 / 8.0) / 2.0), Some(6.0 / 8.0)),
            ("a worker had none",      false, &[&[(1, 1, 1), (1, 1, 0)], &[]],                      Some(0.5),                           Some(0.0)),
            ("a class never comes",    false, &[&[(2, 2, 2), (0, 0, 0), (1, 1, 1)]],                Some(1.0),                           None),
            ("one label of 5 + 5",     true,  &[&[(4, 2, 2)], &[(0, 2, 0)]],                        Some((4.0 / 8.0 + 8.0 / 12.0) / 2.0), Some(4.0 / 8.0)),
            ("two labels",             true,  &[&[(1, 1, 1), (2, 2, 1)]],                           Some(0.75),                          None),
            ("no classes",             false, &[&[]],                                               None,                                None),
        ];
        for (name, of_labels, parts, macro_f1, positive_f1) in cases {
            let sums = parts.iter().fold(EvaluationSums::default(), |all, part| {
                let count = |&(labels, predicted, right)| ClassCount { labels, predicted, right };
                let classes = part.iter().map(count).collect();
                all.plus(&EvaluationSums { classes, of_labels, answers: 5, ..EvaluationSums::default() })
            });
            let got = sums.mean();
            assert_eq!((got.macro_f1, got.positive_f1), (macro_f1, positive_f1), "{name}");
            let lost = EvaluationSums { loss: f64::NAN, ..sums }.mean();
            assert_eq!((lost.macro_f1, lost.positive_f1), (None, None), "{name}");
        }
    }

    #[test]
    fn precision_and_recall_are_those_of_scikit_learn_table() {
        #[rustfmt::skip]
        // Labels, predictions and right ones of each class; precision and recall of all and of the positive class.
        let cases: [(&str, &[(u64, u64, u64)], [Option<f64>; 2], [Option<f64>; 2]); 5] = [
            ("two classes",           &[(3, 4, 2), (5, 4, 3)],            [Some((0.5 + 0.75) / 2.0), Some((2.0 / 3.0 + 0.6) / 2.0)], [Some(0.75), Some(0.6)]),
            ("one is never predicted",&[(3, 4, 3), (1, 0, 0)],            [Some(0.75 / 2.0), Some(0.5)],                             [Some(0.0), Some(0.0)]),
            ("one is never there",    &[(4, 3, 3), (0, 1, 0)],            [Some(0.5), Some(0.75 / 2.0)],                             [Some(0.0), Some(0.0)]),
            ("neither",               &[(4, 4, 4), (0, 0, 0)],            [Some(1.0), Some(1.0)],                                    [None, None]),
            ("three classes",         &[(1, 1, 1), (1, 2, 1), (1, 0, 0)], [Some(0.5), Some(2.0 / 3.0)],                              [None, None]),
        ];
        for (name, counts, of_all, of_positive) in cases {
            let count = |&(labels, predicted, right)| ClassCount { labels, predicted, right };
            let classes = counts.iter().map(count).collect();
            let got = EvaluationSums { classes, ..EvaluationSums::default() }.mean();
            assert_eq!([got.macro_precision, got.macro_recall], of_all, "{name}");
            assert_eq!([got.positive_precision, got.positive_recall], of_positive, "{name}");
            let fields = got.fields(EvaluationSet::Validation);
            let told = |name: &str| fields.iter().any(|(field, _)| *field == name);
            assert_eq!(told("validation_positive_recall"), of_positive[1].is_some(), "{name}");
        }
    }

    #[test]
    fn an_evaluation_gives_every_metric_back() {
        for metric in Metric::ALL {
            let evaluation = Evaluation::of_figure(metric, 0.25);
            let known = Metric::ALL.into_iter().filter(|other| evaluation.figure(*other) == Some(0.25));
            assert_eq!(known.collect::<Vec<_>>(), [metric]);
        }
    }

    #[test]
    fn sums_that_are_no_numbers_come_back_from_the_store() {
        let sums = part(8, f64::NAN, f64::INFINITY, 1.0, f64::NEG_INFINITY);
        let back: EvaluationSums = serde_json::from_str(&serde_json::to_string(&sums).unwrap()).unwrap();
        assert!(back.loss.is_nan() && back.weight == f64::INFINITY, "{back:?}");
        assert_eq!(back.log_perplexity, Some(f64::NEG_INFINITY));
    }
}
