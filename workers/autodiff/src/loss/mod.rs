//! Losses: what is written behind the model's output.
//!
//! Every loss is a weighted mean over the labels of a batch, and `loss_weight` is the sum of the weights, so
//! that `sum(loss * loss_weight) / sum(loss_weight)` over several workers is the mean over all of their
//! labels. A weight of zero (an empty batch, or all labels ignored) gives loss 0 and gradients 0.
//!
//! | name | output | label |
//! |---|---|---|
//! | `softmax-cross-entropy` | scores with one fixed axis of classes, see [`LossOptions::class_axis`] | int64, the output's shape without that axis |
//! | `bce-with-logits` | scores of any shape `[batch, ...]` | float32 of that shape, 0 to 1 |
//! | `mse`, `l1`, `huber` | values of any shape `[batch, ...]` | float32 of that shape |
//! | `output` | what is to become small, of shape `[batch, ...]`, or one number for the batch | none |

mod binary;
mod class_weights;
mod classes;
mod options;
mod own;
mod regression;
mod scores;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use syncline_onnx::{Dim, ElementType, TensorType};

use super::axis::from_front;
use super::emitter::Emitter;
use super::error::AutodiffError;
use super::param_list::near;

pub use class_weights::ClassWeights;
pub use options::LossOptions;
pub(crate) use options::default_class_axis;
pub use scores::sigmoid_outputs;
pub(super) use scores::{scores, sigmoid_of};

/// What training makes small. Each is a weighted mean over the labels of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loss {
    /// One of several classes: the output holds unnormalised scores, the label the number of the class.
    SoftmaxCrossEntropy,
    /// Yes or no, for each element: the output holds unnormalised scores, the label probabilities.
    BinaryCrossEntropy,
    /// Mean of the squared differences.
    MeanSquaredError,
    /// Mean of the absolute differences.
    MeanAbsoluteError,
    /// Squared where the difference is small, absolute where it is large (Huber 1964,
    /// doi:10.1214/aoms/1177703732).
    Huber,
    /// The output itself, of which the model has computed what is to become small: a number for each sample,
    /// or one for the batch. There is no label; what the model compares with is one of its inputs.
    Output,
}

impl Loss {
    /// Every loss.
    pub const ALL: [Self; 6] = [
        Self::SoftmaxCrossEntropy,
        Self::BinaryCrossEntropy,
        Self::MeanSquaredError,
        Self::MeanAbsoluteError,
        Self::Huber,
        Self::Output,
    ];

    /// The name under which a job asks for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SoftmaxCrossEntropy => "softmax-cross-entropy",
            Self::BinaryCrossEntropy => "bce-with-logits",
            Self::MeanSquaredError => "mse",
            Self::MeanAbsoluteError => "l1",
            Self::Huber => "huber",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Loss {
    type Err = AutodiffError;

    /// Its name; `cross-entropy`, as many call it, is `softmax-cross-entropy`.
    fn from_str(name: &str) -> Result<Self, AutodiffError> {
        if name == "cross-entropy" {
            return Ok(Self::SoftmaxCrossEntropy);
        }
        Self::ALL.into_iter().find(|loss| loss.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            let meant = near(name, &known).first().map(|near| format!("; did you mean `{near}`?"));
            let known = known.join(", ") + &meant.unwrap_or_default();
            AutodiffError::UnknownLoss { name: name.to_owned(), known }
        })
    }
}

/// What is predicted of each label, in the order of the labels, as int64 or bool.
#[derive(Debug)]
pub(super) struct Predicted {
    pub(super) value: String,
    pub(super) dims: Vec<Dim>,
}

/// What a loss wrote: names of values, and the type it wants the label to have.
#[derive(Debug)]
pub(super) struct LossValues {
    pub(super) loss: String,
    pub(super) weight: String,
    /// Values beside the loss, with the names of their outputs.
    pub(super) metrics: Vec<(String, String)>,
    /// `None` where labels are no classes.
    pub(super) predicted: Option<Predicted>,
    /// Gradient of the loss for the model's output.
    pub(super) grad: String,
    /// `None`: it takes none.
    pub(super) label: Option<TensorType>,
}

/// A loss with its options and the output that it looks at.
#[derive(Debug)]
pub(super) struct LossAt<'a> {
    pub(super) loss: Loss,
    pub(super) options: &'a LossOptions,
    pub(super) output: &'a str,
    pub(super) ty: &'a TensorType,
    /// Input of the model that has a sample of the batch in each row, if it has any.
    pub(super) first_input: Option<&'a str>,
}

impl LossAt<'_> {
    /// Writes the loss against input `label`, or says why it does not fit.
    pub(super) fn emit(&self, emitter: &mut Emitter, label: &str) -> Result<LossValues, AutodiffError> {
        self.options.check(self.loss)?;
        match self.loss {
            Loss::SoftmaxCrossEntropy => classes::emit(emitter, self, label),
            Loss::BinaryCrossEntropy => binary::emit(emitter, self, label),
            Loss::MeanSquaredError | Loss::MeanAbsoluteError | Loss::Huber => {
                regression::emit(emitter, self, label)
            }
            Loss::Output => own::emit(emitter, self),
        }
    }

    /// The axis of the classes, counted from the front, and their number.
    pub(super) fn classes(&self) -> Result<(usize, usize), AutodiffError> {
        let needed =
            "float32 [batch, number of classes], or more axes of which one of a fixed size holds the classes";
        let rank = self.ty.dims.len();
        let found = from_front(self.options.class_axis(rank), rank).filter(|&axis| axis > 0);
        let count = found.and_then(|axis| Some((axis, self.ty.dims[axis].fixed()?)));
        match count.filter(|&(_, count)| count > 0 && self.ty.element == ElementType::F32) {
            Some(found) => Ok(found),
            None => Err(self.misfit(needed)),
        }
    }

    fn misfit(&self, needed: &'static str) -> AutodiffError {
        let (output, found) = (self.output.to_owned(), self.ty.to_string());
        AutodiffError::LossShape { loss: self.loss.name(), output, found, needed }
    }

    /// Checks that the output is a batch of numbers.
    fn check_values(&self) -> Result<(), AutodiffError> {
        let empty = self.ty.dims.iter().skip(1).any(|dim| *dim == Dim::Fixed(0));
        if self.ty.element == ElementType::F32 && !self.ty.dims.is_empty() && !empty {
            return Ok(());
        }
        Err(self.misfit("float32 [batch, ...]"))
    }

    /// Elements of one label: all axes behind the batch that have a fixed size.
    fn elements_per_label(&self) -> usize {
        self.ty.dims.iter().skip(1).filter_map(Dim::fixed).fold(1, usize::saturating_mul)
    }

    /// Whether an axis behind the batch has another size from batch to batch.
    fn has_open_axes(&self) -> bool {
        self.ty.dims.iter().skip(1).any(|dim| dim.fixed().is_none())
    }

    /// The weight of a batch for losses over all elements: the batch's size, times the axes of open size.
    ///
    /// With open axes two batches of equal size may hold different numbers of elements, and count
    /// accordingly.
    fn batch_weight(&self, e: &mut Emitter) -> String {
        let per_label = self.elements_per_label();
        if !self.has_open_axes() {
            return rows(e, self.output);
        }
        let count = e.op("Size", &[self.output], &[]);
        let count = e.cast(&count, ElementType::F32);
        let per_label = e.float(ElementType::F32, per_label as f64);
        e.op("Div", &[&count, &per_label], &[])
    }

    /// Mean of `values`, which has the output's shape, and the number of elements, 1 at least.
    fn mean(&self, e: &mut Emitter, values: &str) -> (String, String) {
        let total = total(e, values, self.ty.dims.len());
        let count = e.op("Size", &[self.output], &[]);
        let count = e.cast(&count, ElementType::F32);
        let one = e.float(ElementType::F32, 1.0);
        let count = e.op("Max", &[&count, &one], &[]);
        (e.op("Div", &[&total, &count], &[]), count)
    }
}

/// Size of a value's first axis, in float32.
fn rows(e: &mut Emitter, value: &str) -> String {
    let shape = e.op("Shape", &[value], &[]);
    let first = e.int(0);
    let rows = e.op("Gather", &[&shape, &first], &[]);
    e.cast(&rows, ElementType::F32)
}

/// Sum over all axes.
fn total(e: &mut Emitter, value: &str, rank: usize) -> String {
    let axes: Vec<i64> = (0..).take(rank).collect();
    super::broadcast::sum(e, value, &axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_is_read_by_its_name_and_cross_entropy_as_many_call_it() {
        for loss in Loss::ALL {
            assert_eq!(loss.name().parse::<Loss>().unwrap(), loss);
        }
        assert_eq!("cross-entropy".parse::<Loss>().unwrap(), Loss::SoftmaxCrossEntropy);
    }
}
