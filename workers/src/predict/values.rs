//! How far predicted numbers are off.

use syncline_autodiff::Loss;
use syncline_onnx::TensorView;

use super::Output;
use crate::submit::ForwardLoss;

/// How far the numbers of each target are off: of each number that a label has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueFigures {
    /// The output that the loss looks at; `None`: the first.
    output: Option<String>,
    /// In the order of a label's numbers; empty where none was counted.
    pub targets: Vec<TargetFigures>,
}

/// Sums over the numbers of one target that were predicted and those that were right.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TargetFigures {
    count: u64,
    absolute: f64,
    squared: f64,
    label_mean: f64,
    /// Squares of the labels' distance from their mean.
    label_spread: f64,
}

impl ValueFigures {
    /// None where the loss compares no numbers.
    pub(super) fn of(loss: Option<&ForwardLoss>) -> Option<Self> {
        let ForwardLoss { loss, output, .. } = loss?;
        match loss {
            Loss::MeanSquaredError | Loss::MeanAbsoluteError | Loss::Huber => {
                Some(Self { output: output.clone(), targets: Vec::new() })
            }
            Loss::SoftmaxCrossEntropy | Loss::BinaryCrossEntropy | Loss::Output => None,
        }
    }

    /// Adds some labels, and what was predicted for them. Labels of another shape count nothing, and samples
    /// whose prediction is no number neither.
    pub(super) fn add(&mut self, label: TensorView<'_>, outputs: &[Output]) {
        let output = Output::of_loss(outputs, self.output.as_deref());
        let (TensorView::F32 { data, .. }, Some(output)) = (label, output) else { return };
        let width = output.width();
        if data.len() != output.values.len() || width == 0 {
            return;
        }
        self.targets.resize(width, TargetFigures::default());
        for (labels, predicted) in data.chunks_exact(width).zip(output.values.chunks_exact(width)) {
            if predicted.iter().any(|number| number.is_nan()) {
                continue;
            }
            for ((target, &label), &predicted) in self.targets.iter_mut().zip(labels).zip(predicted) {
                target.add(f64::from(label), f64::from(predicted));
            }
        }
    }

    /// Mean of what all numbers are off; `None` if none was counted, as with the others.
    pub fn mean_absolute_error(&self) -> Option<f64> {
        mean(self.sum(|target| target.absolute), self.count())
    }

    /// Root of the mean square of what all numbers are off.
    pub fn root_mean_square_error(&self) -> Option<f64> {
        mean(self.sum(|target| target.squared), self.count()).map(f64::sqrt)
    }

    /// Mean of R² of the targets, without those that have none.
    pub fn r_squared(&self) -> Option<f64> {
        let each: Vec<f64> = self.targets.iter().filter_map(TargetFigures::r_squared).collect();
        mean(each.iter().sum(), each.len() as u64)
    }

    fn sum(&self, of: impl Fn(&TargetFigures) -> f64) -> f64 {
        self.targets.iter().map(of).sum()
    }

    fn count(&self) -> u64 {
        self.targets.iter().map(|target| target.count).sum()
    }
}

impl TargetFigures {
    /// The mean and the spread are updated as Welford has it (Technometrics 4, 1962,
    /// doi:10.1080/00401706.1962.10490022): a sum of squares less the square of the sum loses the spread
    /// of large labels.
    fn add(&mut self, label: f64, predicted: f64) {
        let off = predicted - label;
        self.count += 1;
        self.absolute += off.abs();
        self.squared += off * off;
        let before = label - self.label_mean;
        self.label_mean += before / self.count as f64;
        self.label_spread += before * (label - self.label_mean);
    }

    /// Mean of what they are off; `None` if none was counted, as with the others.
    pub fn mean_absolute_error(&self) -> Option<f64> {
        mean(self.absolute, self.count)
    }

    /// Root of the mean square of what they are off.
    pub fn root_mean_square_error(&self) -> Option<f64> {
        mean(self.squared, self.count).map(f64::sqrt)
    }

    /// 1 less the squares of what they are off over the squares of the labels' distance from their mean;
    /// `None` if all labels are the same.
    pub fn r_squared(&self) -> Option<f64> {
        (self.label_spread > 0.0).then(|| 1.0 - self.squared / self.label_spread)
    }
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels and predictions of `width` numbers a sample, in batches of these sizes.
    fn figures(label: &[f32], predicted: &[f32], width: usize, batches: &[usize]) -> ValueFigures {
        let mut figures = ValueFigures::default();
        let mut from = 0;
        for &samples in batches {
            let to = from + samples * width;
            let values = predicted[from..to].to_vec();
            let output = Output { name: "y".into(), shape: vec![width], is_float32: true, values };
            figures.add(TensorView::F32 { shape: &[samples, width], data: &label[from..to] }, &[output]);
            from = to;
        }
        figures
    }

    fn one(label: &[f32], predicted: &[f32]) -> ValueFigures {
        figures(label, predicted, 1, &[label.len()])
    }

    /// R² in two passes, the mean of the labels first.
    fn two_passes(label: &[f32], predicted: &[f32]) -> f64 {
        let mean = label.iter().map(|&y| f64::from(y)).sum::<f64>() / label.len() as f64;
        let spread: f64 = label.iter().map(|&y| (f64::from(y) - mean).powi(2)).sum();
        let off: f64 =
            label.iter().zip(predicted).map(|(&y, &p)| (f64::from(p) - f64::from(y)).powi(2)).sum();
        1.0 - off / spread
    }

    #[test]
    fn figures_by_hand() {
        // Off by 1, 0, -2, 1; labels lie 1.5, 0.5, 0.5, 1.5 from their mean: 5 in squares.
        let some = one(&[1.0, 2.0, 3.0, 4.0], &[2.0, 2.0, 1.0, 5.0]);
        assert_eq!(some.mean_absolute_error(), Some(1.0));
        assert_eq!(some.root_mean_square_error(), Some(1.5f64.sqrt()));
        assert!((some.r_squared().unwrap() - (1.0 - 6.0 / 5.0)).abs() < 1e-12);
        let equal = one(&[0.1, 0.1, 0.1], &[0.1, 0.2, 0.3]);
        assert_eq!(equal.r_squared(), None, "there is nothing to explain");
        assert_eq!(one(&[], &[]).mean_absolute_error(), None);
        let mut other = ValueFigures::default();
        let output = Output { name: "y".into(), shape: vec![1], is_float32: true, values: vec![1.0, 2.0] };
        other.add(TensorView::F32 { shape: &[1, 1], data: &[1.0] }, &[output]);
        assert_eq!(other.mean_absolute_error(), None, "another shape");
    }

    #[test]
    fn each_target_has_its_figures_and_r_squared_is_their_mean() {
        // Three targets of four samples; labels of the last are all the same.
        #[rustfmt::skip]
        let (label, predicted) = (
            [1.0, 10.0, 5.0,   2.0, 20.0, 5.0,   3.0, 30.0, 5.0,   4.0, 40.0, 5.0],
            [2.0, 10.0, 5.0,   2.0, 20.0, 5.0,   1.0, 30.0, 5.0,   5.0, 40.0, 7.0],
        );
        let some = figures(&label, &predicted, 3, &[3, 1]);
        let each: Vec<_> = some.targets.iter().map(|t| (t.mean_absolute_error(), t.r_squared())).collect();
        assert_eq!(each[1..], [(Some(0.0), Some(1.0)), (Some(0.5), None)]);
        assert!(each[0].0 == Some(1.0) && (each[0].1.unwrap() + 0.2).abs() < 1e-12, "{each:?}");
        assert_eq!(some.mean_absolute_error(), Some(6.0 / 12.0));
        assert_eq!(some.root_mean_square_error(), Some((10.0f64 / 12.0).sqrt()));
        assert!((some.r_squared().unwrap() - 0.4).abs() < 1e-12, "the mean of -0.2 and 1");
    }

    #[test]
    fn a_small_spread_of_large_labels_is_kept() {
        for mean in [0.0, 1e3, 1e6, -3e7, 1e9] {
            // The next float32 numbers, whatever their distance.
            let step = (mean as f32).abs().max(1.0) * f32::EPSILON;
            let label: Vec<f32> = (0..50).map(|at| mean as f32 + (at % 7) as f32 * step).collect();
            let predicted: Vec<f32> = label.iter().map(|y| y + step).collect();
            let (got, want) = (
                figures(&label, &predicted, 1, &[20, 20, 10]).r_squared().unwrap(),
                two_passes(&label, &predicted),
            );
            assert!(
                (got - want).abs() < 1e-6 && want > 0.5,
                "labels about {mean}: {got}, in two passes {want}"
            );
        }
    }

    #[test]
    fn samples_whose_prediction_is_no_number_are_left_out() {
        let label = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0];
        let predicted = [2.0, 1.0, f32::NAN, 9.0, 3.0, 4.0];
        let some = figures(&label, &predicted, 2, &[3]);
        assert_eq!(some.mean_absolute_error(), Some(0.5));
        assert_eq!(some.targets[1].mean_absolute_error(), Some(0.5));
    }
}
