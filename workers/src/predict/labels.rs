//! Which labels a model with several yes-or-no answers gives a sample, and how often each is right.

use std::collections::HashSet;

use syncline_autodiff::Loss;
use syncline_onnx::TensorView;
use syncline_scheduler::core::ClassCount;

use super::Output;
use crate::{data::label_places, submit::ForwardLoss};

/// Where in what a model gives the scores of the labels are.
#[derive(Debug, Default)]
pub(super) struct LabelScores {
    /// The output that the loss looks at; `None`: the first.
    output: Option<String>,
    /// Outputs that are probabilities: a Sigmoid makes them, and the loss looks at what is before it.
    probabilities: HashSet<String>,
}

impl LabelScores {
    /// Of the scores that this model gives; none where it was trained with another loss.
    pub(super) fn of(loss: Option<&ForwardLoss>, onnx: &[u8]) -> Option<Self> {
        let loss = loss.filter(|trained| trained.loss == Loss::BinaryCrossEntropy)?;
        let graph = syncline_onnx::parse(onnx).ok().and_then(|model| model.graph);
        let probabilities = graph.as_ref().map(syncline_autodiff::sigmoid_outputs).unwrap_or_default();
        Some(Self { output: loss.output.clone(), probabilities })
    }

    /// For each number of each sample whether the label is given: 1 where it is, 0 where it is not, as the
    /// accuracy counts it; `None` where the score is no number. None at all where there are no such
    /// scores.
    pub(super) fn given(&self, outputs: &[Output]) -> Vec<Option<u32>> {
        let Some(output) = Output::of_loss(outputs, self.output.as_deref()) else { return Vec::new() };
        let least = if self.probabilities.contains(&output.name) { 0.5 } else { 0.0 };
        let given = |score: &f32| (!score.is_nan()).then_some(u32::from(*score > least));
        output.values.iter().map(given).collect()
    }

    /// How many labels a sample has, and how many numbers follow each other of which each is of the same
    /// label.
    fn labels(&self, outputs: &[Output]) -> Option<(usize, usize)> {
        Some(label_places(&Output::of_loss(outputs, self.output.as_deref())?.shape))
    }
}

/// How often each label was there, was given, and was given where it was there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelFigures {
    /// Of each label: `labels` is its support.
    pub labels: Vec<ClassCount>,
    /// Of what is not there: a score that is no number says neither.
    absent: ClassCount,
    samples: u64,
    samples_right: u64,
    answers: u64,
    answers_right: u64,
}

impl LabelFigures {
    /// Counts some samples, with what was given to each. Labels of another shape count nothing.
    pub(super) fn add(
        &mut self,
        label: TensorView<'_>,
        given: &[Option<u32>],
        scores: &LabelScores,
        outputs: &[Output],
        samples: usize,
    ) {
        let (TensorView::F32 { data, .. }, Some((labels, run))) = (label, scores.labels(outputs)) else {
            return;
        };
        if data.len() != given.len() || samples == 0 || data.is_empty() {
            return;
        }
        self.labels.resize(labels, ClassCount::default());
        let width = data.len() / samples;
        for (wanted, given) in data.chunks_exact(width).zip(given.chunks_exact(width)) {
            let mut right = 0;
            for (at, (&wanted, &given)) in wanted.iter().zip(given).enumerate() {
                let (is_there, counts) = (wanted > 0.5, &mut self.labels[at / run % labels]);
                counts.labels += u64::from(is_there);
                counts.predicted += u64::from(given == Some(1));
                counts.right += u64::from(is_there && given == Some(1));
                self.absent.labels += u64::from(!is_there);
                self.absent.predicted += u64::from(given == Some(0));
                self.absent.right += u64::from(!is_there && given == Some(0));
                right += u64::from(given == Some(u32::from(is_there)));
            }
            self.samples += 1;
            self.samples_right += u64::from(right == width as u64);
            self.answers += width as u64;
            self.answers_right += right;
        }
    }

    /// Share of the samples of which every label was right, 0 to 1; `None` if none was counted.
    pub fn subset_accuracy(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.samples_right as f64 / self.samples as f64)
    }

    /// Mean of a score over all labels that were there or were given, 0 to 1, of a single label over where it
    /// is and where it is not; `None` if none was.
    pub fn macro_mean(&self, of: fn(&ClassCount) -> Option<f64>) -> Option<f64> {
        ClassCount::macro_mean_of_labels(&self.labels, |_| self.absent, of)
    }

    /// Share of all labels of all samples that were right; a score that is no number is not.
    pub fn accuracy(&self) -> Option<f64> {
        (self.answers > 0).then(|| self.answers_right as f64 / self.answers as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(shape: &[usize], values: &[f32]) -> Vec<Output> {
        let (name, shape, values) = ("scores".to_owned(), shape.to_vec(), values.to_vec());
        vec![Output { name, shape, is_float32: true, values }]
    }

    fn counted(shape: &[usize], scores: &LabelScores, values: &[f32], labels: &[f32]) -> LabelFigures {
        let (outputs, samples) = (output(shape, values), values.len() / shape.iter().product::<usize>());
        let mut figures = LabelFigures::default();
        let label = TensorView::F32 { shape: &[labels.len()], data: labels };
        figures.add(label, &scores.given(&outputs), scores, &outputs, samples);
        figures
    }

    fn counts(figures: &LabelFigures) -> Vec<(u64, u64, u64)> {
        figures.labels.iter().map(|c| (c.labels, c.predicted, c.right)).collect()
    }

    #[test]
    fn labels_are_counted_by_hand() {
        #[rustfmt::skip]
        let (scores, labels) = (
            [0.5, -1.0, 2.0,   0.1, 0.2, -9.0,   -0.1, 3.0, 0.0,   f32::NAN, -1.0, 1.0],
            [1.0,  0.0, 1.0,   0.0, 1.0,  0.0,    1.0, 1.0, 1.0,   0.0,       0.0, 0.75],
        );
        let figures = counted(&[3], &LabelScores::default(), &scores, &labels);
        assert_eq!(counts(&figures), [(2, 2, 1), (2, 2, 2), (3, 2, 2)]);
        assert_eq!(figures.subset_accuracy(), Some(0.25), "the first alone");
        assert_eq!(figures.accuracy(), Some(8.0 / 12.0), "what is no number is not right");
        assert_eq!(figures.macro_mean(ClassCount::f1), Some((2.0 / 4.0 + 4.0 / 4.0 + 4.0 / 5.0) / 3.0));
        assert_eq!(figures.labels[0].recall(), Some(0.5));
        assert_eq!(figures.labels[0].precision(), Some(0.5));
    }

    #[test]
    fn a_score_that_is_no_number_is_no_right_answer_of_a_single_label_either() {
        let nan = f32::NAN;
        let counted = |scores: &[f32], labels: &[f32]| counted(&[], &LabelScores::default(), scores, labels);
        let none = counted(&[nan; 10], &[0.0; 10]);
        assert_eq!((none.accuracy(), none.macro_mean(ClassCount::f1)), (Some(0.0), Some(0.0)));
        // Absent: twice there, once given and right. Present: twice there, once given and right.
        let some = counted(&[nan, -1.0, 1.0, nan], &[0.0, 0.0, 1.0, 1.0]);
        assert_eq!(some.macro_mean(ClassCount::recall), Some(0.5));
        assert_eq!(some.macro_mean(ClassCount::precision), Some(1.0));
    }

    #[test]
    fn labels_lie_behind_the_other_axes_and_in_front_of_those_of_images() {
        let (scores, labels) = ([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0], [1.0; 8]);
        let behind = counted(&[4, 2], &LabelScores::default(), &scores, &labels);
        assert_eq!(counts(&behind), [(4, 4, 4), (4, 0, 0)]);
        let image = counted(&[2, 2, 2], &LabelScores::default(), &scores, &labels);
        assert_eq!(counts(&image), [(4, 2, 2), (4, 2, 2)]);
        let single = counted(&[], &LabelScores::default(), &scores, &labels);
        assert_eq!(counts(&single), [(8, 4, 4)]);
    }

    #[test]
    fn probabilities_are_given_above_a_half_and_scores_above_zero() {
        let scores = LabelScores { output: None, probabilities: HashSet::from(["scores".to_owned()]) };
        let outputs = output(&[4], &[0.2, 0.5, 0.6, f32::NAN]);
        assert_eq!(scores.given(&outputs), [Some(0), Some(0), Some(1), None]);
        assert_eq!(LabelScores::default().given(&outputs), [Some(1), Some(1), Some(1), None]);
        let elsewhere = LabelScores { output: Some("other".to_owned()), ..LabelScores::default() };
        assert_eq!(elsewhere.given(&outputs), []);
    }
}
