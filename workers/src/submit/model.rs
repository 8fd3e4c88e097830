//! The model of a training node.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use syncline_autodiff::{Loss, LossOptions};

/// The model to train.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Model {
    /// A forward model; the training graph is derived from it.
    Forward {
        /// The model with its first weights.
        onnx: ByteSource,
        /// What training makes small.
        loss: Loss,
        /// Settings of the loss.
        options: LossOptions,
        /// Output or other float32 value that the loss looks at; `None`: the first float32 output.
        output: Option<String>,
        /// First values of all that trains, or of a part of the model, where those in the model are not
        /// wanted.
        weights: Option<FirstValues>,
    },
    /// A training graph from elsewhere, whose outputs name the gradients (`<parameter>.grad`).
    Ready {
        /// The training graph.
        onnx: ByteSource,
        /// Safetensors file with first values, where those in the graph are not wanted or there are none.
        weights: Option<ByteSource>,
        /// Settings that were given to it and that a forward model alone has, as a job file spells them:
        /// submission refuses them (E366).
        misplaced: Vec<&'static str>,
    },
}

/// Numbers that a forward model begins with in place of its own.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FirstValues {
    /// Safetensors file: a snapshot or a checkpoint of another job, or what PyTorch saved. It has to hold
    /// all that trains; what it holds of the rest is taken as well.
    pub file: ByteSource,
    /// Whether it may hold a part of that: what fits by name and shape is taken, all else keeps the values
    /// of the model.
    pub partial: bool,
}

/// ONNX bytes in memory, or a file that is read at submission; it may be packed, with a name that ends in
/// `.gz`.
#[derive(Clone)]
pub enum ByteSource {
    /// Bytes as they are: nothing is unpacked.
    Memory(Vec<u8>),
    /// Path on the machine that submits.
    File(PathBuf),
}

/// What is in memory by its length and digest: it may be gigabytes.
impl fmt::Debug for ByteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => {
                write!(f, "Memory({} bytes, {})", bytes.len(), blake3::hash(bytes).to_hex())
            }
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl ByteSource {
    /// What to call them in front of people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Memory(_) => "the model".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

impl From<Vec<u8>> for ByteSource {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes)
    }
}

impl From<PathBuf> for ByteSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for ByteSource {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

/// A path, as everywhere else.
impl From<&str> for ByteSource {
    fn from(path: &str) -> Self {
        Self::File(path.into())
    }
}

/// A path, as everywhere else.
impl From<String> for ByteSource {
    fn from(path: String) -> Self {
        Self::File(path.into())
    }
}

impl Model {
    /// A forward model, and what training is to make small. `onnx`: a path, or the bytes themselves.
    #[cfg(feature = "train")]
    pub fn forward(onnx: impl Into<ByteSource>, loss: Loss) -> Self {
        Self::Forward {
            onnx: onnx.into(),
            loss,
            options: LossOptions::default(),
            output: None,
            weights: None,
        }
    }

    /// Sets what the loss takes into account. Submission refuses those of a ready-made graph (E366).
    #[must_use]
    pub fn with_loss_options(mut self, settings: LossOptions) -> Self {
        match &mut self {
            Self::Forward { options, .. } => *options = settings,
            Self::Ready { misplaced, .. } => misplaced.push("loss_options"),
        }
        self
    }

    /// Names the output that the loss looks at. Submission refuses that of a ready-made graph (E366).
    #[must_use]
    pub fn with_output(mut self, name: &str) -> Self {
        match &mut self {
            Self::Forward { output, .. } => *output = Some(name.to_owned()),
            Self::Ready { misplaced, .. } => misplaced.push("output"),
        }
        self
    }

    /// The label that counts nothing, if the loss knows one.
    pub(super) fn ignored_label(&self) -> Option<i64> {
        match self {
            Self::Forward { options, .. } => options.ignore_index,
            Self::Ready { .. } => None,
        }
    }

    /// What each class weighs; none where all count alike, or while that is to be counted.
    pub(super) fn class_weights(&self) -> &[f32] {
        match self {
            Self::Forward { options, .. } => options.class_weights.each(),
            Self::Ready { .. } => &[],
        }
    }

    /// Whether the loss takes labels for probabilities.
    pub(super) fn wants_probabilities(&self) -> bool {
        matches!(self, Self::Forward { loss: Loss::BinaryCrossEntropy, .. })
    }

    /// A training graph from elsewhere.
    pub fn ready(onnx: impl Into<ByteSource>) -> Self {
        Self::Ready { onnx: onnx.into(), weights: None, misplaced: Vec::new() }
    }

    /// Sets other first values, from a safetensors file such as a snapshot of another job. It has to hold all
    /// that trains, in the shapes that the model has (E247; of a ready-made graph E261 and E318, and of
    /// that nothing else). Of a forward model, what it holds of the rest is taken as well, and what the
    /// model does not have is left out, with a warning.
    #[must_use]
    pub fn with_weights(mut self, safetensors: impl Into<ByteSource>) -> Self {
        match &mut self {
            Self::Forward { weights, .. } => {
                *weights = Some(FirstValues { file: safetensors.into(), partial: false })
            }
            Self::Ready { weights, .. } => *weights = Some(safetensors.into()),
        }
        self
    }

    /// Sets other first values for a part of the model, such as a body under a new head: tensors of the file
    /// that fit by name and shape are taken, all others keep the values of the model, and submission says
    /// which. A file of which nothing fits is refused (E247), and so is one for a ready-made graph
    /// (E366).
    #[must_use]
    pub fn with_partial_weights(mut self, safetensors: impl Into<ByteSource>) -> Self {
        match &mut self {
            Self::Forward { weights, .. } => {
                *weights = Some(FirstValues { file: safetensors.into(), partial: true })
            }
            Self::Ready { misplaced, .. } => misplaced.push("weights.partial"),
        }
        self
    }
}
