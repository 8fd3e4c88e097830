//! One batch of samples, in buffers that are used again.

use syncline_onnx::TensorView;
use syncline_scheduler::spec::ModelSpec;

use super::block::BatchTensor;

/// The inputs and the label of a batch, laid out as a training graph reads them.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(super) rows: usize,
    pub(super) inputs: Vec<BatchTensor>,
    pub(super) label: Option<BatchTensor>,
}

impl Batch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The inputs, `[batch, sample shape ...]` each, in the order in which the model wants them.
    pub fn inputs(&self) -> impl Iterator<Item = TensorView<'_>> {
        self.inputs.iter().map(BatchTensor::view)
    }

    /// The label, if the model wants one: int64 classes or float32 targets, `[batch, label shape ...]`.
    pub fn label(&self) -> Option<TensorView<'_>> {
        self.label.as_ref().map(BatchTensor::view)
    }

    /// The inputs under the names that the model gives them.
    pub fn named_inputs<'a>(
        &'a self,
        model: &'a ModelSpec,
    ) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        model.inputs.iter().map(|input| input.name.as_str()).zip(self.inputs())
    }

    /// Inputs and label under the names that the model gives them.
    pub fn named<'a>(&'a self, model: &'a ModelSpec) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        self.named_inputs(model).chain(model.label.as_deref().zip(self.label()))
    }
}
