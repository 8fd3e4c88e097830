//! How often each class is there, is predicted, and is right, over the samples of an evaluation.

use syncline_autodiff::PREDICTED;
use syncline_onnx::TensorView;
use syncline_scheduler::{
    core::{ClassCount, EvaluationSums, MOST_COUNTED_CLASSES},
    spec::ModelSpec,
};

use crate::data::label_places;

/// Counts of one part of the samples.
#[derive(Debug)]
pub(super) struct ClassCounts {
    counts: Vec<ClassCount>,
    /// Each class may be there or not by itself; so many numbers of a label follow each other that are of
    /// the same one.
    of_labels: Option<usize>,
    answers: u64,
    ignored: Option<i64>,
}

impl ClassCounts {
    /// `outputs`: of the evaluation graph. `None` where it predicts no classes, or more than are counted.
    pub(super) fn of(model: &ModelSpec, outputs: &[String]) -> Option<Self> {
        outputs.iter().find(|output| *output == PREDICTED)?;
        let shape: Vec<usize> = model.label_shape.iter().map(|&size| size as usize).collect();
        let (classes, of_labels) = match model.classes {
            Some(classes) => (classes as usize, None),
            None => {
                let (classes, apart) = label_places(&shape);
                (classes, Some(apart))
            }
        };
        let counts = vec![ClassCount::default(); classes];
        let ignored = model.ignored_label;
        (classes <= MOST_COUNTED_CLASSES).then_some(Self { counts, of_labels, answers: 0, ignored })
    }

    /// Counts the labels of a batch, and what is predicted of each.
    pub(super) fn add(&mut self, labels: TensorView<'_>, predicted: &[i64]) {
        match (labels, self.of_labels) {
            (TensorView::I64 { data, .. }, None) => {
                let counted = data.iter().zip(predicted).filter(|(label, _)| Some(**label) != self.ignored);
                for (&label, &predicted) in counted {
                    if let Some(count) = class(&mut self.counts, label) {
                        count.labels += 1;
                        count.right += u64::from(label == predicted);
                    }
                    if let Some(count) = class(&mut self.counts, predicted) {
                        count.predicted += 1;
                    }
                }
            }
            (TensorView::F32 { data, .. }, Some(apart)) => {
                let classes = self.counts.len().max(1);
                self.answers += data.len() as u64;
                for (place, (&label, &predicted)) in data.iter().zip(predicted).enumerate() {
                    let (is_there, is_predicted) = (label > 0.5, predicted == 1);
                    let count = &mut self.counts[place / apart.max(1) % classes];
                    count.labels += u64::from(is_there);
                    count.predicted += u64::from(is_predicted);
                    count.right += u64::from(is_there && is_predicted);
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(self, sums: EvaluationSums) -> EvaluationSums {
        let (of_labels, answers) = (self.of_labels.is_some(), self.answers);
        EvaluationSums { classes: self.counts, of_labels, answers, ..sums }
    }
}

fn class(counts: &mut [ClassCount], label: i64) -> Option<&mut ClassCount> {
    counts.get_mut(usize::try_from(label).ok()?)
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::sim;

    use super::*;

    fn model(classes: Option<u32>, ignored_label: Option<i64>, label_shape: &[u32]) -> ModelSpec {
        let model = sim::training("bsp".parse().unwrap(), 8, 1).model;
        ModelSpec { classes, ignored_label, label_shape: label_shape.to_vec(), ..model }
    }

    fn counted(counts: ClassCounts) -> Vec<(u64, u64, u64)> {
        let sums = counts.finish(EvaluationSums::default());
        sums.classes.iter().map(|count| (count.labels, count.predicted, count.right)).collect()
    }

    #[test]
    fn classes_are_counted_by_hand_without_what_is_ignored() {
        let outputs = [PREDICTED.to_owned()];
        let mut counts = ClassCounts::of(&model(Some(3), Some(-100), &[]), &outputs).unwrap();
        counts.add(TensorView::I64 { shape: &[4], data: &[0, 0, 1, -100] }, &[0, 1, 1, 2]);
        counts.add(TensorView::I64 { shape: &[3], data: &[2, 2, 2] }, &[0, 0, 1]);
        assert_eq!(counted(counts), [(2, 3, 1), (1, 3, 1), (3, 0, 0)]);
        assert!(ClassCounts::of(&model(Some(1_001), None, &[]), &outputs).is_none(), "too many");
        assert!(ClassCounts::of(&model(Some(3), None, &[]), &[]).is_none(), "a graph that predicts none");
    }

    #[test]
    fn labels_that_may_be_there_together_are_counted_where_they_are() {
        let outputs = [PREDICTED.to_owned()];
        let mut counts = ClassCounts::of(&model(None, None, &[2]), &outputs).unwrap();
        counts.add(
            TensorView::F32 { shape: &[3, 2], data: &[1.0, 0.0, 1.0, 1.0, 0.0, 0.4] },
            &[1, 1, 0, 1, 0, 0],
        );
        assert_eq!(counted(counts), [(2, 1, 1), (1, 2, 1)]);
        // An image: the classes come first, each with all its pixels.
        let mut counts = ClassCounts::of(&model(None, None, &[2, 1, 2]), &outputs).unwrap();
        counts.add(TensorView::F32 { shape: &[1, 2, 1, 2], data: &[1.0, 1.0, 0.0, 1.0] }, &[1, 0, 0, 1]);
        assert_eq!(counted(counts), [(2, 1, 1), (1, 1, 1)]);
    }

    #[test]
    fn of_a_mask_both_classes_are_counted_by_pixel() {
        let mut counts = ClassCounts::of(&model(None, None, &[1, 2, 2]), &[PREDICTED.to_owned()]).unwrap();
        let labels = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        counts.add(TensorView::F32 { shape: &[2, 1, 2, 2], data: &labels }, &[1, 0, 0, 1, 1, 0, 0, 0]);
        let sums =
            counts.finish(EvaluationSums { samples: 2, predictions: 2.0, ..EvaluationSums::default() });
        // There: 2 of 3 and 2 of 3. Not there: 4 of 5 and 4 of 5.
        let evaluation = sums.mean();
        let f1 = (2.0 / 3.0 + 4.0 / 5.0) / 2.0;
        assert!((evaluation.macro_f1.unwrap() - f1).abs() < 1e-12, "{evaluation:?}");
        assert!((evaluation.macro_recall.unwrap() - f1).abs() < 1e-12, "{evaluation:?}");
    }
}
