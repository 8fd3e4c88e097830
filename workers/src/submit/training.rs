//! How a training node trains.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use syncline_autodiff::{EvalMode, Precision};
use syncline_scheduler::spec::{
    CheckpointSpec, Compression, DataSpec, Decay, EvaluateSpec, LearningRate, OnNan, Optimizer, PolicySpec,
    PullCompression,
};

use super::{
    checkpoint::checkpoint, eval_mode::eval_mode, groups::ParameterGroup, model::Model,
    name_or_table::name_or_table, optimizer::optimizer,
};

/// Settings of a training node. Start with [`Training::new`] and change what should differ.
#[derive(Debug, Clone)]
pub struct Training {
    /// A forward model with a loss, or a ready training graph.
    pub model: Model,
    /// Where every worker finds training and test samples, and how it reads them.
    pub data: DataSpec,
    /// How it trains, and which workers take part.
    pub settings: Settings,
}

/// The settings that a job file spells the same way.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// In a file also by its name alone, such as `adam`.
    #[serde(deserialize_with = "optimizer")]
    pub optimizer: Optimizer,
    /// The learning rate behind the warmup, before any decay; `None`: what suits the optimizer, see
    /// [`Optimizer::default_learning_rate`].
    pub learning_rate: Option<f32>,
    /// Share of the training over which the learning rate rises in a straight line from 0, 0 to below 1; by
    /// default it begins with all of it. One epoch of 40 is `1.0 / 40.0`.
    pub warmup: f32,
    /// How the learning rate falls over the samples behind the warmup; by default it does not.
    #[serde(deserialize_with = "name_or_table")]
    pub decay: Decay,
    /// The learning rate at which a decay ends that is not of steps, up to `learning_rate`; 0 by default,
    /// and above it for `Exponential`.
    pub min_learning_rate: f32,
    /// When workers meet; `elastic-bsp:15` by default.
    pub policy: PolicySpec,
    /// Samples per iteration and worker.
    pub batch: u32,
    /// Most samples that a worker computes on at once: it takes a larger batch in pieces, one after the
    /// other, and pushes their weighted mean once. Memory is that of a piece, the step that of the
    /// batch. `None`: a batch is computed at once.
    pub micro_batch: Option<u32>,
    /// Passes over the training samples, 1 by default.
    pub epochs: u32,
    /// Leave out the samples of an epoch that do not fill a batch; different ones each time.
    pub drop_last: bool,
    /// Take the samples of each epoch in an order of its own, the default; otherwise in the order of the
    /// files.
    pub shuffle: bool,
    /// Seed of the order of the samples, of augmentation, and of Dropout where the graph is derived.
    pub seed: u64,
    /// What to do when loss or gradient is NaN or infinite; by default the job fails.
    pub on_nan: OnNan,
    /// Gradients with a larger norm over all parameters are scaled down to it; `None`: none is.
    pub clip_norm: Option<f32>,
    /// Training starts when this many workers are there, 1 by default.
    pub min_workers: u32,
    /// No more workers than this take part; `None`: all there are.
    pub max_workers: Option<u32>,
    /// Iterations granted beyond the last finished one while no plan says how many, 1 to 64; `None`: 1 or 2,
    /// and more where steps are short and the policy allows it.
    pub ahead: Option<u32>,
    /// Longest time for which the job may wait for its first worker; without it, it waits forever.
    pub queue_limit_s: Option<u64>,
    /// How often a checkpoint is taken, to which the job goes back when a shard is lost, and how many are
    /// kept; by default one every five minutes, the newest, until the job is done. `None`: none is.
    #[serde(deserialize_with = "checkpoint")]
    pub checkpoint: Option<CheckpointSpec>,
    /// How often the model is evaluated while it trains, and what that decides. It is evaluated on the
    /// validation set of the data, and on the test set once at the end; or on the test set all the time
    /// where there is no other. At the end a node may do it.
    pub evaluate: Option<EvaluateSpec>,
    /// A checkpoint file of another training of this model on this data: this one goes on from there, with
    /// its parameters, the optimizer's state and its place among the samples. See
    /// [`Client::save_checkpoint`](crate::client::Client::save_checkpoint).
    pub resume: Option<PathBuf>,
    /// How gradients travel to the shards: as they are, or in fewer bytes.
    #[serde(deserialize_with = "name_or_table")]
    pub compression: Compression,
    /// How parameters travel from the shards to workers on other machines.
    pub pull_compression: PullCompression,
    /// The parameters to train, as PyTorch names them: they decide alone, and all of them have to exist.
    pub params: Option<ParamList>,
    /// The parameters to train, as names or patterns such as `head.*`; empty: all of them, as `model show`
    /// lists them. Not beside `params`, which decides alone.
    pub train: Vec<String>,
    /// Parameters that are not trained, as names or patterns such as `features.*`.
    pub freeze: Vec<String>,
    /// Embedding tables of which only the rows travel that a batch reads, as names or patterns such as
    /// `*.embedding.weight`. A named one has to be such a table; others that a pattern matches travel as
    /// a whole, with a warning.
    pub sparse: Vec<String>,
    /// Parameters that train with another weight decay or learning rate than the rest, such as biases
    /// without decay.
    pub groups: Vec<ParameterGroup>,
    /// What trains in evaluation mode, where BatchNormalization uses its running statistics and Dropout is
    /// off: nothing, the whole model, or a part of it by names or patterns such as `body.*`. In a file
    /// `true`, `false` or a list.
    #[serde(deserialize_with = "eval_mode")]
    pub eval_mode: EvalMode,
    /// Compute type of matrix products and convolutions (mixed precision); parameters and gradients stay
    /// float32. With [`Precision::Tf32`] all of it does, and GPUs may round the factors of products, of
    /// a ready training graph as well.
    pub precision: Precision,
    /// Recompute cheap activations in the backward pass (activation checkpointing): less memory, a little
    /// more time.
    pub recompute: bool,
    /// Compare the gradients with a difference of the loss along one random direction first, and refuse
    /// wrong ones.
    pub check: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            optimizer: Optimizer::Sgd { weight_decay: 0.0 },
            learning_rate: None,
            warmup: 0.0,
            decay: Decay::Constant,
            min_learning_rate: 0.0,
            policy: PolicySpec::default(),
            batch: 32,
            micro_batch: None,
            epochs: 1,
            drop_last: false,
            shuffle: true,
            seed: 0,
            on_nan: OnNan::Fail,
            clip_norm: None,
            min_workers: 1,
            max_workers: None,
            ahead: None,
            queue_limit_s: None,
            checkpoint: Some(CheckpointSpec::default()),
            evaluate: None,
            resume: None,
            compression: Compression::None,
            pull_compression: PullCompression::None,
            params: None,
            train: Vec::new(),
            freeze: Vec::new(),
            sparse: Vec::new(),
            groups: Vec::new(),
            eval_mode: EvalMode::Nothing,
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
            ("train", !self.train.is_empty()),
            ("freeze", !self.freeze.is_empty()),
            ("sparse", !self.sparse.is_empty()),
            ("eval_mode", self.eval_mode != EvalMode::Nothing),
            ("precision", self.precision.is_half()),
            ("recompute", self.recompute),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
    }

    pub(super) fn rate(&self) -> LearningRate {
        LearningRate {
            base: self.learning_rate.unwrap_or_else(|| self.optimizer.default_learning_rate()),
            warmup: self.warmup,
            decay: self.decay.clone(),
            min: self.min_learning_rate,
        }
    }
}

impl Training {
    /// Trains `model` on `data`, a [`DataSpec`] or a [`Source`](syncline_scheduler::spec::Source), with the
    /// default settings.
    pub fn new(model: Model, data: impl Into<DataSpec>) -> Self {
        Self { model, data: data.into(), settings: Settings::default() }
    }

    /// Changes settings in place: `training.with(|s| s.epochs = 20)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}

/// Names of parameters: in memory, or in a file that is read at submission, one a line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "PathBuf")]
pub enum ParamList {
    /// Names as PyTorch prints them, one an entry.
    Names(Vec<String>),
    /// Text file on the machine that submits; a list as Python prints it will do.
    File(PathBuf),
}

impl From<PathBuf> for ParamList {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for ParamList {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<Vec<String>> for ParamList {
    fn from(names: Vec<String>) -> Self {
        Self::Names(names)
    }
}
