//! What can be chosen about a training graph.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LABEL;
use crate::loss::LossOptions;
use crate::precision::Precision;

/// What of a model trains as it evaluates: its BatchNormalizations keep the statistics that they remember,
/// and its Dropouts pass everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum EvalMode {
    /// All of it trains in training form.
    #[default]
    Nothing,
    /// The whole model.
    Whole,
    /// What these names or patterns with `*` mean, as PyTorch's `model.train(); model.body.eval()`:
    /// normalizations by the names of their tensors, and both by the path of their module or the name of
    /// their node.
    Parts(Vec<String>),
}

impl EvalMode {
    /// Whether all of the model trains as it evaluates.
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

/// All of a model, or nothing.
impl From<bool> for EvalMode {
    fn from(whole: bool) -> Self {
        if whole { Self::Whole } else { Self::Nothing }
    }
}

/// How to derive a training graph.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeriveOptions {
    /// The model's output, or another float32 value of it, that the loss looks at; the first float32 output
    /// if not given. Where that is probabilities, a cross-entropy looks at what they are made of, see
    /// [`TrainingGraph::loss_at`](super::TrainingGraph::loss_at).
    pub output: Option<String>,
    /// Name of the input that holds the wanted answers. Default `label`.
    pub label: String,
    /// Settings of the loss.
    pub loss: LossOptions,
    /// Names of the parameters to train, as PyTorch prints them: they decide alone, and all of them have to
    /// exist.
    pub params: Option<Vec<String>>,
    /// Weights to train, as names or patterns with `*`. If neither is given, [`select`](super::select())
    /// decides.
    pub train: Option<Vec<String>>,
    /// Weights that stay as they are, as names or patterns with `*`.
    pub freeze: Vec<String>,
    /// Tables whose rows are fed as a batch reads them, as names or patterns with `*`: see
    /// [`RowTables`](super::RowTables).
    pub sparse: Vec<String>,
    /// What of the model trains as it evaluates: BatchNormalization with the statistics that it remembers,
    /// no Dropout.
    pub eval_mode: EvalMode,
    /// Seed of the Dropout nodes.
    pub seed: i64,
    /// Compute type of matrix products and convolutions, and of what is between them (mixed precision);
    /// everything that goes in and out stays float32.
    pub precision: Precision,
    /// Makes cheap values again in the backward pass instead of keeping them: less memory, a little more
    /// time.
    pub recompute: bool,
    /// For inputs that leave sizes open: the shape of a sample of the data, which takes their place. Some
    /// gradients need it, those of convolutions above all.
    pub sample_shapes: BTreeMap<String, Vec<usize>>,
    /// Lets ONNX Runtime fold constants and inline functions first. Default yes.
    pub simplify: bool,
}

impl Default for DeriveOptions {
    fn default() -> Self {
        Self {
            output: None,
            label: LABEL.to_owned(),
            loss: LossOptions::default(),
            params: None,
            train: None,
            freeze: Vec::new(),
            sparse: Vec::new(),
            eval_mode: EvalMode::Nothing,
            seed: 0,
            precision: Precision::F32,
            recompute: false,
            sample_shapes: BTreeMap::new(),
            simplify: true,
        }
    }
}
