//! A training graph and what a worker has to know of it.

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{Dim, ElementType, OnnxError, TensorType};

use crate::recompute::Saving;
use crate::row_tables::RowTables;

/// An input or output of a training graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Name in the training graph.
    pub name: String,
    /// Element type that a run feeds or gives.
    pub element: ElementType,
    /// Sizes of the axes, the first one outermost; empty for a single number.
    pub dims: Vec<Dim>,
}

impl Io {
    pub(super) fn new(name: &str, ty: TensorType) -> Self {
        Self { name: name.to_owned(), element: ty.element, dims: ty.dims }
    }
}

/// A trained parameter with its first value, in row-major order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// Name in the forward model, and of the input of the training graph.
    pub name: String,
    /// Sizes of the axes; empty for a single number.
    pub shape: Vec<usize>,
    /// As many numbers as the shape says.
    #[serde(with = "as_bytes")]
    pub initial: Vec<f32>,
}

/// A model that can be trained. The module's documentation lists the names of its inputs and outputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrainingGraph {
    /// Computes loss, metrics and gradients.
    #[serde(with = "serde_bytes")]
    pub train_onnx: Vec<u8>,
    /// Computes loss and metrics.
    #[serde(with = "serde_bytes")]
    pub eval_onnx: Vec<u8>,
    /// The parameters, in the order of the forward model.
    pub params: Vec<Param>,
    /// Running statistics, fed as parameters are; a step gives their next values as `<name>.new`.
    pub state: Vec<Param>,
    /// The value that the loss looks at: the output that was asked for, or the scores of which a Softmax or
    /// Sigmoid makes it. A ready-made graph does not say.
    pub loss_at: Option<String>,
    /// The Sigmoid that makes these, where softmax cross-entropy takes what it gives for scores, as PyTorch
    /// does.
    pub scores_by_sigmoid: Option<String>,
    /// The first value that is found to compare the samples of a batch with each other. A ready-made graph
    /// does not say.
    pub mixed_samples: Option<String>,
    /// What is fed besides parameters and label.
    pub data_inputs: Vec<Io>,
    /// The label. A ready-made graph may have none.
    pub label: Option<Io>,
    /// The outputs of the forward model, or of a ready-made graph what is neither loss nor gradient.
    pub forward_outputs: Vec<Io>,
    /// Whether there is an output `correct`.
    pub has_correct: bool,
    /// Whether there is an output `correct_topk` for some k.
    pub has_correct_top: bool,
    /// Whether there is an output `perplexity`.
    pub has_perplexity: bool,
    /// What recomputation saves, where the options ask for it.
    pub saving: Option<Saving>,
    /// The tables that may be given with the rows of a batch alone.
    pub row_tables: RowTables,
    /// Parameters that no gradient reaches: the loss does not depend on them through operators with a
    /// gradient. A ready-made graph does not say.
    pub unreached: Vec<String>,
    /// Number of classes, where the label is one of several.
    pub classes: Option<usize>,
}

impl TrainingGraph {
    /// Names and shapes of parameters and running statistics.
    pub fn parameter_shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.params.iter().chain(&self.state).map(|param| (param.name.as_str(), param.shape.as_slice()))
    }

    /// A sentence on scores that are hardly meant as such.
    pub fn doubtful_scores(&self) -> Option<String> {
        let node = self.scores_by_sigmoid.as_ref()?;
        Some(format!(
            "softmax-cross-entropy takes what the Sigmoid `{node}` gives for scores, as PyTorch does: from 0 to 1, they make no class more \
             than 2.7 times as probable as another; if labels are one class each, name the value before the Sigmoid as the output, and \
             if any number of classes may be true, use bce-with-logits"
        ))
    }

    /// A sentence on a loss that is another one where a batch is cut.
    pub fn doubtful_batches(&self) -> Option<String> {
        let value = self.mixed_samples.as_ref()?;
        Some(format!(
            "`{value}` compares the samples of a batch with each other, so that the loss depends on which are together: a piece of `micro_batch` or \
             --split-batch is compared within itself, each of several workers compares within its own batches, and evaluations within theirs"
        ))
    }

    /// The training graph as a file that stands for itself: the first values of parameters and running
    /// statistics are the defaults of their inputs.
    pub fn with_first_values(&self) -> Result<Vec<u8>, OnnxError> {
        let mut model = syncline_onnx::parse(&self.train_onnx)?;
        let held = self.params.iter().chain(&self.state);
        let first = held.map(|param| TensorProto::from_f32(&param.name, &param.shape, &param.initial));
        model.graph.get_or_insert_default().initializer.extend(first);
        Ok(model.to_bytes())
    }
}

/// Many numbers, as the bytes that they are in memory: between processes of one machine.
mod as_bytes {
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(numbers: &[f32], to: S) -> Result<S::Ok, S::Error> {
        serde_bytes::serialize(bytemuck::cast_slice::<f32, u8>(numbers), to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
        let bytes: Vec<u8> = serde_bytes::deserialize(from)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
    }
}
