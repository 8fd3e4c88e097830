//! Settings of the training node.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    CheckpointSpec, Compression, DataSpec, EvaluateSpec, Layout, LearningRate, Optimizer, Parameter,
    PolicyRule, PolicySpec, PullCompression, ResumeSpec, SubmittedSettings,
};
use crate::{ids::ContentDigest, samples::permutation};

/// The model as the client derived and uploaded it. Digests name blobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// ONNX graph that maps parameters and a batch to `loss`, `loss_weight` and `<parameter>.grad`.
    pub training_graph: ContentDigest,
    /// ONNX graph that evaluates: the training graph without gradients.
    pub evaluation_graph: ContentDigest,
    /// The user's own model.
    pub forward: ContentDigest,
    /// Initial parameters: little-endian f32 in layout order, or a safetensors file that begins with them.
    pub initial: ContentDigest,
    /// What the parameters are called, and where each lies in the flat array.
    pub layout: Layout,
    /// The graph inputs that take data.
    pub inputs: Vec<DataInput>,
    /// Name of the graph input that takes the labels.
    pub label: Option<String>,
    /// Labels are class numbers below this; `None`: labels are real numbers.
    pub classes: Option<u32>,
    /// A label that is no class and counts nothing, where the loss knows one.
    pub ignored_label: Option<i64>,
    /// Shape of one sample's label: empty if it is one number.
    pub label_shape: Vec<u32>,
}

/// An input of the graph that is fed from the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataInput {
    /// Name of the graph input.
    pub name: String,
    /// Element type of the graph input.
    pub element: DataElement,
    /// Shape of one sample.
    pub shape: Vec<u32>,
    /// Rows of the table that its integers choose from, where they do so as they are: from 0 to this less
    /// one.
    #[serde(default)]
    pub rows: Option<u64>,
    /// The same for each number on the last axis of a sample, where these differ.
    #[serde(default)]
    pub column_rows: Vec<Option<u64>>,
    /// The group of tables of which it chooses the rows that travel. A worker feeds places among these for
    /// its integers.
    #[serde(default)]
    pub row_group: Option<u32>,
}

/// What numbers an input takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataElement {
    /// 32-bit floats, scaled and normalized as the data spec says.
    F32,
    /// 32-bit integers, never scaled.
    I32,
    /// 64-bit integers, never scaled.
    I64,
    /// Truth values, which are 0 or 1 in the data.
    Bool,
}

impl ModelSpec {
    /// Digests of every blob the job needs.
    pub fn blobs(&self) -> [ContentDigest; 4] {
        [self.training_graph, self.evaluation_graph, self.forward, self.initial]
    }
}

/// What to do when a loss or gradient is not finite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnNan {
    /// The job fails and names the iteration and the worker.
    #[default]
    Fail,
    /// The push carries no weight, so that every roster still completes.
    Skip,
}

/// A training node: what to train, on what, how, and when workers meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainSpec {
    /// What is trained: graphs and initial parameters.
    pub model: ModelSpec,
    /// What it is trained and tested on.
    pub data: DataSpec,
    /// Makes steps of gradients: on the shards, in local rounds on the workers.
    pub optimizer: Optimizer,
    /// Rate of these steps, before the policy's factor.
    pub learning_rate: LearningRate,
    /// When workers meet.
    pub policy: PolicySpec,
    /// Samples per iteration and worker.
    pub batch: u32,
    /// Most samples that a worker computes on at once: it takes a larger batch in pieces, one after the
    /// other.
    #[serde(default)]
    pub micro_batch: Option<u32>,
    /// Passes over the training set, at least 1.
    pub epochs: u32,
    /// Leaves out the samples of an epoch that do not fill a batch; other ones each time.
    #[serde(default)]
    pub drop_last: bool,
    /// Whether each epoch has the samples in an order of its own; else in that of the files.
    #[serde(default = "yes")]
    pub shuffle: bool,
    /// Seed of the order of the samples, another one in each epoch, and of how images change.
    pub seed: u64,
    /// What a loss or gradient that is not finite leads to.
    #[serde(default)]
    pub on_nan: OnNan,
    /// Gradients with a larger global norm are scaled down to it.
    #[serde(default)]
    pub clip_norm: Option<f32>,
    /// Training starts when this many workers are there.
    #[serde(default = "one_worker")]
    pub min_workers: u32,
    /// No more workers than this take part.
    #[serde(default = "all_workers")]
    pub max_workers: u32,
    /// Iterations granted beyond the last finished one while no plan says how many; `None`: 1, or 2 when a
    /// step is shorter than a control round trip.
    #[serde(default)]
    pub ahead: Option<u32>,
    /// Longest time for which the job may wait for its first worker. That of a training in a graph is up to
    /// its task.
    #[serde(default)]
    pub queue_limit_ms: Option<u64>,
    /// What a lost shard brings the training back to; `None`: nothing does. Before there was a default,
    /// whoever asked for none had none.
    #[serde(default)]
    pub checkpoint: Option<CheckpointSpec>,
    /// How often it is evaluated while it runs, and once when it ends; by nobody if left out.
    #[serde(default)]
    pub evaluate: Option<EvaluateSpec>,
    /// The training goes on from here; its initial parameters are a checkpoint file then.
    #[serde(default)]
    pub resume: Option<ResumeSpec>,
    /// How gradients travel to the shards.
    #[serde(default)]
    pub compression: Compression,
    /// How parameters travel to the workers.
    #[serde(default)]
    pub pull_compression: PullCompression,
    /// Lets devices that have tensor cores for it round the factors of float32 products to TensorFloat-32.
    #[serde(default)]
    pub tf32: bool,
    /// What the graph computes in, as a job asks for it, such as `f32`: for people. Empty of a job of an
    /// earlier release.
    #[serde(default)]
    pub precision: String,
    /// Settings that made the graph what it is, such as the loss: for people, see
    /// [`setting_list`](Self::setting_list).
    #[serde(default)]
    pub submitted: SubmittedSettings,
}

pub(super) fn yes() -> bool {
    true
}

fn one_worker() -> u32 {
    1
}

fn all_workers() -> u32 {
    u32::MAX
}

impl TrainSpec {
    /// Which checkpoints it keeps, for people.
    pub fn checkpoints_in_words(&self) -> String {
        self.checkpoint.map_or_else(|| "none".to_owned(), |spec| spec.to_string())
    }

    /// Whether the parameter server steps with the changes of whole rounds, not with gradients.
    pub(crate) fn steps_by_round(&self) -> bool {
        matches!(self.policy.rule, PolicyRule::DiLoCo { .. })
    }

    /// What the parameter server steps with: the job's optimizer, except under DiLoCo, where that one works
    /// on the workers and the server holds the outer Nesterov optimizer.
    pub fn shard_optimizer(&self) -> Optimizer {
        match self.policy.rule {
            PolicyRule::DiLoCo { momentum, .. } => {
                Optimizer::Momentum { momentum, nesterov: true, weight_decay: 0.0 }
            }
            _ => self.optimizer,
        }
    }

    /// The parameters as the parameter server has them. Under DiLoCo it steps with changes of whole rounds,
    /// and settings that parameters have for themselves are for the steps of the workers.
    pub fn shard_layout(&self) -> Layout {
        match self.policy.rule {
            PolicyRule::DiLoCo { .. } => self.model.layout.without_settings(),
            _ => self.model.layout.clone(),
        }
    }

    /// Why the tables of which only rows travel cannot be trained so, in words.
    pub(super) fn tables_fault(&self) -> Option<String> {
        let layout = &self.model.layout;
        if let Some(fault) = layout.tables_fault() {
            return Some(fault);
        }
        let of_tables: BTreeSet<u32> = layout.0.iter().filter_map(Parameter::row_group).collect();
        let inputs = self.model.inputs.iter().filter(|input| input.element != DataElement::F32);
        let of_inputs: BTreeSet<u32> = inputs.filter_map(|input| input.row_group).collect();
        if of_tables != of_inputs {
            return Some(
                "the rows of a table are chosen by no input of integers, or by one without a table".into(),
            );
        }
        if of_tables.is_empty() {
            return None;
        }
        match self.policy.rule {
            PolicyRule::LocalSgd { .. } | PolicyRule::DiLoCo { .. } => Some(format!(
                "under {} a worker steps on all parameters by itself; name another policy, or no tables",
                self.policy
            )),
            _ if self.compression != Compression::None => Some(format!(
                "compression {}: rows travel as they are; leave one of the two out",
                self.compression
            )),
            _ if self.pull_compression != PullCompression::None => Some(format!(
                "pull_compression {}: rows travel as they are; leave one of the two out",
                self.pull_compression
            )),
            _ => None,
        }
    }

    /// Most samples that fit into the batch of a worker that computes on `max_batch` at once: any number
    /// where it takes a batch in pieces.
    pub(crate) fn batch_limit(&self, max_batch: Option<u32>) -> Option<u32> {
        max_batch.filter(|_| self.micro_batch.is_none())
    }

    /// Most samples at once on a worker that computes on `max_batch` at once; `None`: a whole batch, of any
    /// size.
    pub fn samples_at_once(&self, max_batch: Option<u32>) -> Option<u32> {
        self.micro_batch.map(|most| most.min(max_batch.unwrap_or(most)).max(1))
    }

    /// Samples of one epoch: all of the training set, or as many as fill batches.
    pub fn epoch_samples(&self) -> u64 {
        let samples = self.data.train_samples;
        if self.drop_last { samples - samples % u64::from(self.batch.max(1)) } else { samples }
    }

    /// The order in which an epoch visits the samples of the training set. Cost O(samples).
    pub fn sample_order(&self, epoch: u32) -> Vec<u32> {
        let samples = u32::try_from(self.data.train_samples).unwrap_or(u32::MAX);
        if self.shuffle { permutation(self.seed, epoch, samples) } else { (0..samples).collect() }
    }

    /// The norm to which the parameter server scales down the mean of a round of gradients. Under DiLoCo its
    /// rounds are of changes, and the workers clip their own steps.
    pub fn shard_clip_norm(&self) -> Option<f32> {
        match self.policy.rule {
            PolicyRule::DiLoCo { .. } => None,
            _ => self.clip_norm,
        }
    }

    /// Samples of all epochs.
    pub fn total_samples(&self) -> u64 {
        self.epoch_samples().saturating_mul(u64::from(self.epochs))
    }
}

#[cfg(test)]
mod tests {
    use crate::{sim::training, spec::StepSettings};

    #[test]
    fn what_fits_at_once_bounds_a_batch_or_its_pieces() {
        #[rustfmt::skip]
        let cases = [
            // micro_batch, max_batch, most in a batch, most at once
            (None,     None,     None,     None),
            (None,     Some(16), Some(16), None),
            (Some(8),  None,     None,     Some(8)),
            (Some(8),  Some(16), None,     Some(8)),
            (Some(32), Some(16), None,     Some(16)),
        ];
        for (micro_batch, max_batch, in_a_batch, at_once) in cases {
            let mut train = training("lb-bsp".parse().unwrap(), 256, 64);
            train.micro_batch = micro_batch;
            let got = (train.batch_limit(max_batch), train.samples_at_once(max_batch));
            assert_eq!(got, (in_a_batch, at_once), "{micro_batch:?} on {max_batch:?}");
        }
    }

    #[test]
    fn shards_step_by_groups_unless_they_step_with_changes_of_rounds() {
        for (policy, grouped) in [("bsp", true), ("asp", true), ("local-sgd:4", true), ("diloco:4", false)] {
            let mut train = training(policy.parse().unwrap(), 64, 8);
            train.model.layout.0[0].settings =
                StepSettings { learning_rate_factor: 0.5, ..StepSettings::default() };
            assert_eq!(train.shard_layout() == train.model.layout, grouped, "{policy}");
            assert_eq!(train.shard_layout().groups(&train.optimizer).len(), usize::from(grouped), "{policy}");
        }
    }
}
