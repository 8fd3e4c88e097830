//! A job graph as a user writes it in Rust.

use std::path::PathBuf;

use serde::Deserialize;
use syncline_autodiff::{LossOptions, Precision};
use syncline_scheduler::spec::{DataSpec, Decay, LearningRate, OnNan, Optimizer, PolicySpec};

use super::optimizer::optimizer;

/// A graph of named nodes. Built node by node, then given to [`submit`](super::submit).
///
/// ```
/// # use syncline_workers::submit::{JobGraph, Model, Training};
/// # use syncline_scheduler::spec::{DataSpec, Source};
/// let data = Source::Idx { images: "train-images.gz".into(), labels: "train-labels.gz".into() };
/// let model = Model::forward(b"the bytes of an ONNX file".to_vec(), "softmax-cross-entropy");
/// let training = Training::new(model, DataSpec::new(data)).with(|s| s.epochs = 20);
/// let job = JobGraph::new("digits")
///     .train("train", training)
///     .evaluate("test", &["train"])
///     .snapshot("weights", &["train"]);
/// assert_eq!(job.nodes.len(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct JobGraph {
    pub id: String,
    pub nodes: Vec<GraphNode>,
}

/// One node of a [`JobGraph`].
#[derive(Debug, Clone)]
pub struct GraphNode {
    pub name: String,
    pub after: Vec<String>,
    pub work: NodeWork,
}

/// What a node does.
#[derive(Debug, Clone)]
pub enum NodeWork {
    Train(Box<Training>),
    Evaluate,
    Snapshot,
}

/// The model to train.
#[derive(Debug, Clone)]
pub enum Model {
    /// A forward model; the training graph is derived from it. The loss looks at `output`, or at the first output.
    Forward { onnx: ByteSource, loss: String, options: LossOptions, output: Option<String> },
    /// A training graph from elsewhere, whose outputs name the gradients (`<parameter>.grad`). `weights`: a safetensors file
    /// with first values, where those in the graph are not wanted or there are none.
    Ready { onnx: ByteSource, weights: Option<ByteSource> },
}

/// ONNX bytes in memory, or a file that is read at submission; it may be packed, with a name that ends in `.gz`.
#[derive(Debug, Clone)]
pub enum ByteSource {
    Memory(Vec<u8>),
    File(PathBuf),
}

impl ByteSource {
    /// What to call them in front of people.
    pub(super) fn name(&self) -> String {
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

/// Names of parameters: in memory, or in a file that is read at submission, one a line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "PathBuf")]
pub enum ParamList {
    Names(Vec<String>),
    File(PathBuf),
}

impl From<PathBuf> for ParamList {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<Vec<String>> for ParamList {
    fn from(names: Vec<String>) -> Self {
        Self::Names(names)
    }
}

impl Model {
    /// A forward model with the name of its loss, see [`Loss`](syncline_autodiff::Loss).
    pub fn forward(onnx: impl Into<ByteSource>, loss: &str) -> Self {
        Self::Forward {
            onnx: onnx.into(),
            loss: loss.to_owned(),
            options: LossOptions::default(),
            output: None,
        }
    }

    /// The same with settings of the loss; a ready-made graph stays as it is.
    #[must_use]
    pub fn with_loss(mut self, settings: LossOptions) -> Self {
        if let Self::Forward { options, .. } = &mut self {
            *options = settings;
        }
        self
    }

    /// The same with the output that the loss looks at; a ready-made graph stays as it is.
    #[must_use]
    pub fn with_output(mut self, name: &str) -> Self {
        if let Self::Forward { output, .. } = &mut self {
            *output = Some(name.to_owned());
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

    /// A training graph from elsewhere.
    pub fn ready(onnx: impl Into<ByteSource>) -> Self {
        Self::Ready { onnx: onnx.into(), weights: None }
    }

    /// The same with other first values, a safetensors file; a forward model stays as it is.
    #[must_use]
    pub fn with_weights(mut self, safetensors: impl Into<ByteSource>) -> Self {
        if let Self::Ready { weights, .. } = &mut self {
            *weights = Some(safetensors.into());
        }
        self
    }
}

/// Settings of a training node. Start with [`Training::new`] and change what should differ.
#[derive(Debug, Clone)]
pub struct Training {
    pub model: Model,
    pub data: DataSpec,
    pub settings: Settings,
}

/// The settings that a job file spells the same way.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// In a file also by its name alone, such as `adam`.
    #[serde(deserialize_with = "optimizer")]
    pub optimizer: Optimizer,
    pub learning_rate: f32,
    pub decay: Decay,
    pub policy: PolicySpec,
    /// Samples per iteration and worker.
    pub batch: u32,
    pub epochs: u32,
    /// Leave out the samples of an epoch that do not fill a batch; other ones each time.
    pub drop_last: bool,
    pub seed: u64,
    pub on_nan: OnNan,
    pub clip_norm: Option<f32>,
    pub min_workers: u32,
    pub max_workers: Option<u32>,
    pub ahead: Option<u32>,
    /// The parameters to train, as PyTorch names them: they decide alone, and all of them have to exist.
    pub params: Option<ParamList>,
    /// Parameters that stay as they are, as names or patterns such as `features.*`.
    pub freeze: Vec<String>,
    /// Train as the model evaluates: BatchNormalization with the statistics it remembers, no Dropout.
    pub eval_mode: bool,
    /// Element type of products and what stands between them; parameters and gradients stay float32.
    pub precision: Precision,
    /// Make cheap values again in the backward pass instead of keeping them: less memory, a little more time.
    pub recompute: bool,
    /// Compare the gradients with a difference of the loss along one random direction first, and refuse wrong ones.
    pub check: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            optimizer: Optimizer::Sgd { weight_decay: 0.0 },
            learning_rate: 0.1,
            decay: Decay::Constant,
            policy: PolicySpec::default(),
            batch: 32,
            epochs: 1,
            drop_last: false,
            seed: 0,
            on_nan: OnNan::Fail,
            clip_norm: None,
            min_workers: 1,
            max_workers: None,
            ahead: None,
            params: None,
            freeze: Vec::new(),
            eval_mode: false,
            precision: Precision::F32,
            recompute: false,
            check: true,
        }
    }
}

impl Settings {
    /// Names of the settings that differ from the default and say how to derive a training graph.
    pub(super) fn derivation_settings(&self) -> Vec<&'static str> {
        let changed = [
            ("params", self.params.is_some()),
            ("freeze", !self.freeze.is_empty()),
            ("eval_mode", self.eval_mode),
            ("precision", self.precision != Precision::F32),
            ("recompute", self.recompute),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
    }

    pub(super) fn rate(&self) -> LearningRate {
        LearningRate { base: self.learning_rate, decay: self.decay }
    }
}

impl Training {
    /// Trains `model` on `data` with the default settings.
    pub fn new(model: Model, data: DataSpec) -> Self {
        Self { model, data, settings: Settings::default() }
    }

    /// Changes settings in place: `training.with(|s| s.epochs = 20)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}

impl JobGraph {
    /// An empty graph.
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), nodes: Vec::new() }
    }

    /// The training nodes, to be changed.
    pub fn trainings_mut(&mut self) -> impl Iterator<Item = &mut Training> {
        self.nodes.iter_mut().filter_map(|node| match &mut node.work {
            NodeWork::Train(training) => Some(&mut **training),
            NodeWork::Evaluate | NodeWork::Snapshot => None,
        })
    }

    fn node(mut self, name: &str, after: &[&str], work: NodeWork) -> Self {
        let after = after.iter().map(|a| (*a).to_owned()).collect();
        self.nodes.push(GraphNode { name: name.to_owned(), after, work });
        self
    }

    /// Adds the training node.
    #[must_use]
    pub fn train(self, name: &str, training: Training) -> Self {
        self.node(name, &[], NodeWork::Train(Box::new(training)))
    }

    /// Adds a node that measures loss and accuracy on the test part of the data.
    #[must_use]
    pub fn evaluate(self, name: &str, after: &[&str]) -> Self {
        self.node(name, after, NodeWork::Evaluate)
    }

    /// Adds a node that writes the parameters as safetensors.
    #[must_use]
    pub fn snapshot(self, name: &str, after: &[&str]) -> Self {
        self.node(name, after, NodeWork::Snapshot)
    }
}
