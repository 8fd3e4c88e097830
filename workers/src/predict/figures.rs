//! What comes of all samples together.

use syncline_scheduler::core::Evaluation;

use super::{ClassFigures, LabelFigures, ValueFigures};

/// What comes of all samples together.
#[derive(Debug, Default)]
pub struct Figures {
    /// Loss and metrics, as the job is evaluated; `None` without labels.
    pub evaluation: Option<Evaluation>,
    /// How the classes are told apart, where a loss has some.
    pub classes: Option<ClassFigures>,
    /// How far predicted numbers are off, where they are compared with numbers.
    pub values: Option<ValueFigures>,
    /// How labels are given that a sample has any number of, where the loss is `bce-with-logits`.
    pub labels: Option<LabelFigures>,
    /// Samples for which the output that the loss reads has a NaN. Nothing is predicted there: their labels
    /// count as not found, and [`values`](Self::values) are without them.
    pub nan_samples: u64,
}

impl Figures {
    /// The graph takes some class where scores are no numbers, and may be right by chance.
    pub(super) fn correct_accuracy(&mut self) {
        if let Some(evaluation) = self.evaluation.as_mut().filter(|_| self.nan_samples > 0) {
            let of_classes = self.classes.as_ref().and_then(ClassFigures::accuracy);
            evaluation.accuracy = of_classes.or(self.labels.as_ref().and_then(LabelFigures::accuracy));
            evaluation.top_k_accuracy = None;
        }
    }
}
