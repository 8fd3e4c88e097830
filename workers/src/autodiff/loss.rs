//! Losses: what is written behind the model's output.

use std::fmt;
use std::str::FromStr;

use super::broadcast::sum;
use super::emitter::Emitter;
use super::error::AutodiffError;
use crate::onnx::{Dim, ElementType, TensorType, attr_int};

/// What training makes small. Each is a mean over the samples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Classification: output `[batch, classes]` of unnormalised scores, label int64 `[batch]`.
    SoftmaxCrossEntropy,
    /// Regression: mean of the squared difference over all elements; the label has the output's shape.
    MeanSquaredError,
}

impl Loss {
    /// Every loss.
    pub const ALL: [Self; 2] = [Self::SoftmaxCrossEntropy, Self::MeanSquaredError];

    /// The name under which a job asks for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SoftmaxCrossEntropy => "softmax-cross-entropy",
            Self::MeanSquaredError => "mse",
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

    fn from_str(name: &str) -> Result<Self, AutodiffError> {
        Self::ALL.into_iter().find(|loss| loss.name() == name).ok_or_else(|| AutodiffError::UnknownLoss {
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// What a loss wrote: names of values, and the type it wants the label to have.
#[derive(Debug)]
pub(super) struct LossValues {
    pub(super) loss: String,
    pub(super) weight: String,
    pub(super) correct: Option<String>,
    /// Gradient of the loss for the model's output.
    pub(super) grad: String,
    pub(super) label: TensorType,
}

impl Loss {
    /// The type of the label for an output of this type, or why the loss does not fit.
    pub(super) fn label_type(self, output: &str, ty: &TensorType) -> Result<TensorType, AutodiffError> {
        let (fits, needed) = match self {
            Self::SoftmaxCrossEntropy => {
                let known =
                    ty.dims.last().is_some_and(|classes| classes.fixed().is_some_and(|count| count > 0));
                (ty.dims.len() == 2 && known, "float32 [batch, number of classes]")
            }
            Self::MeanSquaredError => (!ty.dims.is_empty(), "float32 [batch, ...]"),
        };
        if !fits || ty.element != ElementType::F32 {
            let (output, found) = (output.to_owned(), ty.to_string());
            return Err(AutodiffError::LossShape { loss: self.name(), output, found, needed });
        }
        Ok(match self {
            Self::SoftmaxCrossEntropy => TensorType::new(ElementType::I64, vec![ty.dims[0].clone()]),
            Self::MeanSquaredError => ty.clone(),
        })
    }

    /// Writes the loss of output `y` against input `label`.
    pub(super) fn emit(
        self,
        emitter: &mut Emitter,
        y: &str,
        ty: &TensorType,
        label: &str,
    ) -> Result<LossValues, AutodiffError> {
        let label_type = self.label_type(y, ty)?;
        Ok(match self {
            Self::SoftmaxCrossEntropy => cross_entropy(emitter, y, &ty.dims, label, label_type),
            Self::MeanSquaredError => mean_squared_error(emitter, y, ty, label, label_type),
        })
    }
}

/// loss = -1/B sum_b log p[b, label_b] with log p = LogSoftmax(y); d loss / d y = (p - onehot) / B.
fn cross_entropy(e: &mut Emitter, y: &str, dims: &[Dim], label: &str, label_type: TensorType) -> LossValues {
    let classes = dims.last().and_then(Dim::fixed).unwrap_or(0);
    let log_p = e.op("LogSoftmax", &[y], &[attr_int("axis", 1)]);
    let depth = e.int(i64::try_from(classes).unwrap_or(i64::MAX));
    let off_on = e.constant(crate::onnx::proto::TensorProto::from_f32("", &[2], &[0.0, 1.0]));
    let onehot = e.op("OneHot", &[label, &depth, &off_on], &[]);
    let count = e.op("Size", &[label], &[]);
    let weight = e.cast(&count, ElementType::F32);

    let picked = e.op("Mul", &[&log_p, &onehot], &[]);
    let total = sum(e, &picked, &[0, 1]);
    let mean = e.op("Div", &[&total, &weight], &[]);
    let loss = e.op("Neg", &[&mean], &[]);

    let p = e.op("Exp", &[&log_p], &[]);
    let difference = e.op("Sub", &[&p, &onehot], &[]);
    let grad = e.op("Div", &[&difference, &weight], &[]);

    let best = e.op("ArgMax", &[y], &[attr_int("axis", 1), attr_int("keepdims", 0)]);
    let right = e.op("Equal", &[&best, label], &[]);
    let right = e.cast(&right, ElementType::F32);
    let correct = sum(e, &right, &[0]);
    LossValues { loss, weight, correct: Some(correct), grad, label: label_type }
}

/// loss = mean((y - label)^2); d loss / d y = 2 (y - label) / count.
fn mean_squared_error(
    e: &mut Emitter,
    y: &str,
    ty: &TensorType,
    label: &str,
    label_type: TensorType,
) -> LossValues {
    let difference = e.op("Sub", &[y, label], &[]);
    let square = e.op("Mul", &[&difference, &difference], &[]);
    let axes: Vec<i64> = (0..).take(ty.dims.len()).collect();
    let total = sum(e, &square, &axes);
    let count = e.op("Size", &[y], &[]);
    let count = e.cast(&count, ElementType::F32);
    let loss = e.op("Div", &[&total, &count], &[]);

    let two = e.float(ElementType::F32, 2.0);
    let factor = e.op("Div", &[&two, &count], &[]);
    let grad = e.op("Mul", &[&difference, &factor], &[]);

    let shape = e.op("Shape", &[y], &[]);
    let first = e.int(0);
    let batch = e.op("Gather", &[&shape, &first], &[]);
    let weight = e.cast(&batch, ElementType::F32);
    LossValues { loss, weight, correct: None, grad, label: label_type }
}
