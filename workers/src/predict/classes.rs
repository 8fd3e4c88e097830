//! Which class a model names, and how often it is right.

use std::collections::HashMap;

use syncline_onnx::TensorView;
use syncline_scheduler::core::ClassCount;

use super::Output;
use crate::submit::ForwardLoss;

/// Where in what a model gives the scores of the classes are.
#[derive(Debug)]
pub(super) struct ClassScores {
    /// How many classes there are; `None`: the loss knows none.
    classes: Option<usize>,
    /// The output that the loss looks at; `None`: the first.
    output: Option<String>,
    /// Axis of the classes, the batch counted as one; from the back if negative.
    axis: Option<i64>,
}

impl ClassScores {
    /// `classes`: how many there are; `None`: the loss knows none.
    pub(super) fn of(loss: Option<&ForwardLoss>, classes: Option<usize>) -> Self {
        Self {
            classes,
            output: loss.and_then(|loss| loss.output.clone()),
            axis: loss.and_then(|loss| loss.class_axis),
        }
    }

    /// The class with the highest score, the first of several, for each label of each sample, `None` where a
    /// score is no number; none at all where there are no such scores.
    pub(super) fn highest(&self, outputs: &[Output], samples: usize) -> Vec<Option<u32>> {
        let output = Output::of_loss(outputs, self.output.as_deref());
        let (Some(classes), Some(output)) = (self.classes, output) else { return Vec::new() };
        let rank = output.shape.len() as i64 + 1;
        // As losses have it: behind all other axes, but for images.
        let axis = self.axis.unwrap_or(if rank < 4 { -1 } else { 1 });
        let axis = if axis < 0 { axis + rank } else { axis } - 1;
        let Some(axis) = usize::try_from(axis).ok().filter(|&axis| output.shape.get(axis) == Some(&classes))
        else {
            return Vec::new();
        };
        let before: usize = output.shape[..axis].iter().product();
        let after: usize = output.shape[axis + 1..].iter().product();
        let score =
            |row: usize, class: usize, place: usize| output.values[(row * classes + class) * after + place];
        let places = (0..samples * before).flat_map(|row| (0..after).map(move |place| (row, place)));
        let highest = places.map(|(row, place)| {
            let better = |best: usize, class: usize| {
                if score(row, class, place) > score(row, best, place) { class } else { best }
            };
            let is_number = (0..classes).all(|class| !score(row, class, place).is_nan());
            is_number.then(|| (0..classes).fold(0, better) as u32)
        });
        highest.collect()
    }
}

/// How often each class was there, was named, and was right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFigures {
    ignored: Option<i64>,
    /// Of each class.
    pub classes: Vec<ClassCount>,
    /// Label and another class that was named in its place: how often.
    pub confused: HashMap<(u32, u32), u64>,
}

impl ClassFigures {
    pub(super) fn new(classes: u32, ignored: Option<i64>) -> Self {
        Self { ignored, classes: vec![ClassCount::default(); classes as usize], confused: HashMap::new() }
    }

    /// Counts some labels, with the class that was named for each; where none was, the label is one that was
    /// not found.
    pub(super) fn add(&mut self, label: TensorView<'_>, predicted: &[Option<u32>]) {
        let TensorView::I64 { data, .. } = label else { return };
        for (&label, &predicted) in data.iter().zip(predicted) {
            if Some(label) == self.ignored {
                continue;
            }
            let Ok(label) = u32::try_from(label) else { continue };
            let is_class = |class: u32| (class as usize) < self.classes.len();
            if !is_class(label) || !predicted.is_none_or(is_class) {
                continue;
            }
            self.classes[label as usize].labels += 1;
            let Some(predicted) = predicted else { continue };
            self.classes[predicted as usize].predicted += 1;
            if label == predicted {
                self.classes[label as usize].right += 1;
            } else {
                *self.confused.entry((label, predicted)).or_default() += 1;
            }
        }
    }

    /// Whether any label was counted.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.labels == 0)
    }

    /// Share of the labels for which the right class was named, 0 to 1; `None` without labels.
    pub fn accuracy(&self) -> Option<f64> {
        let sum = |of: fn(&ClassCount) -> u64| self.classes.iter().map(of).sum();
        share(sum(|class| class.right), sum(|class| class.labels))
    }

    /// Mean of a score over all classes that are there or were named, 0 to 1; `None` without labels.
    pub fn macro_mean(&self, of: fn(&ClassCount) -> Option<f64>) -> Option<f64> {
        ClassCount::macro_mean(&self.classes, of).filter(|_| !self.is_empty())
    }

    /// The most frequent mistakes: label, what was named instead, and how often.
    pub fn most_confused(&self, most: usize) -> Vec<(u32, u32, u64)> {
        let mut all: Vec<_> =
            self.confused.iter().map(|(&(label, named), &times)| (label, named, times)).collect();
        all.sort_by_key(|&(label, named, times)| (std::cmp::Reverse(times), label, named));
        all.truncate(most);
        all
    }
}

fn share(of: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| of as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(classes: usize, axis: Option<i64>) -> ClassScores {
        ClassScores { classes: Some(classes), output: None, axis }
    }

    fn output(shape: &[usize], values: &[f32]) -> Vec<Output> {
        let (name, shape, values) = ("scores".to_owned(), shape.to_vec(), values.to_vec());
        vec![Output { name, shape, is_float32: true, values }]
    }

    #[test]
    fn the_highest_score_names_the_class_along_the_axis_of_the_loss() {
        // Two samples of three classes.
        let flat = output(&[3], &[0.1, 0.7, 0.2, 5.0, 1.0, 5.0]);
        assert_eq!(scores(3, None).highest(&flat, 2), [Some(1), Some(0)], "the first of equal ones");
        // A sample of two places, the classes behind them, and in front of them.
        let behind = output(&[2, 3], &[0.0, 1.0, 2.0, 9.0, 1.0, 2.0]);
        assert_eq!(scores(3, None).highest(&behind, 1), [Some(2), Some(0)]);
        let before = output(&[3, 2], &[0.0, 9.0, 1.0, 1.0, 2.0, 2.0]);
        assert_eq!(scores(3, Some(1)).highest(&before, 1), [Some(2), Some(0)]);
        // An image of 1 x 2 pixels: classes come first.
        let image = output(&[2, 1, 2], &[0.0, 3.0, 1.0, 2.0]);
        assert_eq!(scores(2, None).highest(&image, 1), [Some(1), Some(0)]);
        assert_eq!(scores(4, None).highest(&flat, 2), [], "no axis of four");
        let labels =
            Output { name: "label".into(), shape: vec![], is_float32: false, values: vec![1.0, 0.0] };
        let behind_labels = [vec![labels], flat.clone()].concat();
        assert_eq!(scores(3, None).highest(&behind_labels, 2), [Some(1), Some(0)], "integers are no scores");
        assert_eq!(ClassScores { classes: None, ..scores(3, None) }.highest(&flat, 2), []);
        assert_eq!(ClassScores { output: Some("other".into()), ..scores(3, None) }.highest(&flat, 2), []);
    }

    #[test]
    fn classes_are_counted_by_label_and_by_name_without_what_is_ignored() {
        let mut figures = ClassFigures::new(3, Some(-100));
        assert!(figures.is_empty());
        let labels = [0, 0, 1, -100, 2, 2, 2];
        let label = TensorView::I64 { shape: &[7], data: &labels };
        figures.add(label, &[0, 1, 1, 2, 0, 0, 1].map(Some));
        let counts: Vec<_> = figures.classes.iter().map(|c| (c.labels, c.predicted, c.right)).collect();
        assert_eq!(counts, [(2, 3, 1), (1, 3, 1), (3, 0, 0)]);
        assert_eq!(figures.most_confused(2), [(2, 0, 2), (0, 1, 1)]);
        assert_eq!((figures.classes[0].recall(), figures.classes[2].precision()), (Some(0.5), None));
        assert_eq!(figures.accuracy(), Some(2.0 / 6.0));
    }

    #[test]
    fn the_macro_f1_score_is_the_mean_of_the_classes_that_are_there_or_were_named() {
        #[rustfmt::skip]
        let cases: [(&str, &[(i64, u32)], Option<f64>); 5] = [
            ("all right",            &[(0, 0), (1, 1)],                         Some(1.0)),
            // 2 / 4, 2 / 3 and 0 / 1; the fourth class is neither there nor named.
            ("one class never found",&[(0, 0), (0, 1), (1, 1), (2, 0)],         Some((0.5 + 2.0 / 3.0) / 3.0)),
            // 2 / 3, and 0 / 1 for a class that is only named.
            ("one only named",       &[(0, 0), (-100, 1), (0, 3)],              Some((2.0 / 3.0) / 2.0)),
            ("none right",           &[(0, 1), (1, 0)],                         Some(0.0)),
            ("no labels",            &[(-100, 1)],                              None),
        ];
        for (name, pairs, want) in cases {
            let (labels, named): (Vec<i64>, Vec<Option<u32>>) =
                pairs.iter().map(|&(label, named)| (label, Some(named))).unzip();
            let mut figures = ClassFigures::new(4, Some(-100));
            figures.add(TensorView::I64 { shape: &[labels.len()], data: &labels }, &named);
            assert_eq!(figures.macro_mean(ClassCount::f1), want, "{name}");
        }
    }

    #[test]
    fn a_score_that_is_no_number_names_no_class_and_its_label_is_not_found() {
        let nan = f32::NAN;
        let named = scores(2, None).highest(&output(&[2], &[nan, 1.0, 1.0, nan, nan, nan, 2.0, 1.0]), 4);
        assert_eq!(named, [None, None, None, Some(0)]);
        let infinite = output(&[2], &[f32::NEG_INFINITY, f32::INFINITY]);
        assert_eq!(scores(2, None).highest(&infinite, 1), [Some(1)]);
        let mut figures = ClassFigures::new(2, None);
        figures.add(TensorView::I64 { shape: &[4], data: &[0, 1, 0, 0] }, &named);
        let counts: Vec<_> = figures.classes.iter().map(|c| (c.labels, c.predicted, c.right)).collect();
        assert_eq!(counts, [(3, 1, 1), (1, 0, 0)]);
        assert_eq!((figures.accuracy(), figures.most_confused(5).len()), (Some(0.25), 0));
    }
}
