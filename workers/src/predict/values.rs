//! How far predicted numbers are off.

use syncline_onnx::TensorView;

use super::Output;
use crate::client::TrainedJob;

/// Losses that compare numbers with numbers.
const REGRESSION: [&str; 3] = ["mse", "l1", "huber"];

/// Sums over numbers that were predicted and those that were right.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueFigures {
    /// The output that the loss looks at; `None`: the first.
    output: Option<String>,
    count: u64,
    absolute: f64,
    squared: f64,
    label: f64,
    label_squared: f64,
}

impl ValueFigures {
    /// None of a job whose loss compares no numbers.
    pub(super) fn of(job: &TrainedJob) -> Option<Self> {
        let loss = job.settings.get("model.forward.loss")?;
        let output = job.settings.get("model.forward.output").map(str::to_owned);
        REGRESSION.contains(&loss).then(|| Self { output, ..Self::default() })
    }

    /// Adds some labels, and what was predicted for them. Labels of another shape count nothing.
    pub(super) fn add(&mut self, label: TensorView<'_>, outputs: &[Output]) {
        let output = Output::of_loss(outputs, self.output.as_deref());
        let (TensorView::F32 { data, .. }, Some(output)) = (label, output) else { return };
        if data.len() != output.values.len() {
            return;
        }
        for (&label, &predicted) in data.iter().zip(&output.values) {
            let (label, off) = (f64::from(label), f64::from(predicted) - f64::from(label));
            self.count += 1;
            self.absolute += off.abs();
            self.squared += off * off;
            self.label += label;
            self.label_squared += label * label;
        }
    }

    /// Mean of what they are off; `None` if none was counted, as with the others.
    pub fn mean_absolute_error(&self) -> Option<f64> {
        self.mean(self.absolute)
    }

    /// Root of the mean square of what they are off.
    pub fn root_mean_square_error(&self) -> Option<f64> {
        self.mean(self.squared).map(f64::sqrt)
    }

    /// 1 less the squares of what they are off over the squares of the labels' distance from their mean; `None` if all labels are
    /// the same.
    pub fn r_squared(&self) -> Option<f64> {
        let mean = self.mean(self.label)?;
        let spread = self.label_squared - self.count as f64 * mean * mean;
        // What is left of equal labels is rounding.
        (spread > self.label_squared * 1e-12).then(|| 1.0 - self.squared / spread)
    }

    fn mean(&self, sum: f64) -> Option<f64> {
        (self.count > 0).then(|| sum / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(label: &[f32], predicted: &[f32]) -> ValueFigures {
        let mut figures = ValueFigures::default();
        let output =
            Output { name: "y".into(), shape: vec![1], is_float32: true, values: predicted.to_vec() };
        figures.add(TensorView::F32 { shape: &[label.len(), 1], data: label }, &[output]);
        figures
    }

    #[test]
    fn figures_by_hand() {
        // Off by 1, 0, -2, 1; labels lie 1.5, 0.5, 0.5, 1.5 from their mean: 5 in squares.
        let some = figures(&[1.0, 2.0, 3.0, 4.0], &[2.0, 2.0, 1.0, 5.0]);
        assert_eq!(some.mean_absolute_error(), Some(1.0));
        assert_eq!(some.root_mean_square_error(), Some(1.5f64.sqrt()));
        assert!((some.r_squared().unwrap() - (1.0 - 6.0 / 5.0)).abs() < 1e-12);
        let equal = figures(&[0.1, 0.1, 0.1], &[0.1, 0.2, 0.3]);
        assert_eq!(equal.r_squared(), None, "there is nothing to explain");
        assert_eq!(figures(&[], &[]).mean_absolute_error(), None);
        assert_eq!(figures(&[1.0], &[1.0, 2.0]).mean_absolute_error(), None, "another shape");
    }
}
