//! A job for runs without tensors: only what the core looks at is filled in.

use crate::{
    ids::ContentDigest,
    spec::{
        Compression, DataSpec, JobSpec, Layout, LearningRate, ModelSpec, Node, NodeKind, OnNan, Optimizer,
        Parameter, PolicySpec, PullCompression, Source, SubmittedSettings, TrainSpec,
    },
};

/// Of some content that nobody looks at.
fn digest(nth: u8) -> ContentDigest {
    ContentDigest::from_bytes([nth; 32])
}

/// Training settings with one small parameter under `policy`: one epoch of `samples` samples in batches of
/// `batch`, for one worker or more.
pub fn training(policy: PolicySpec, samples: u64, batch: u32) -> TrainSpec {
    TrainSpec {
        model: ModelSpec {
            training_graph: digest(1),
            evaluation_graph: digest(2),
            forward: digest(3),
            initial: digest(4),
            layout: Layout(vec![Parameter::trained("w", vec![4])]),
            inputs: vec![],
            label: None,
            classes: None,
            ignored_label: None,
            label_shape: vec![],
        },
        data: DataSpec { train_samples: samples, ..DataSpec::new(Source::csv("d.csv")) },
        optimizer: Optimizer::Sgd { weight_decay: 0.0 },
        learning_rate: LearningRate::constant(0.1),
        policy,
        batch,
        micro_batch: None,
        epochs: 1,
        drop_last: false,
        shuffle: true,
        seed: 0,
        on_nan: OnNan::Fail,
        clip_norm: None,
        min_workers: 1,
        max_workers: u32::MAX,
        ahead: None,
        queue_limit_ms: None,
        checkpoint: None,
        evaluate: None,
        resume: None,
        compression: Compression::None,
        pull_compression: PullCompression::None,
        tf32: false,
        precision: "f32".to_owned(),
        submitted: SubmittedSettings::default(),
    }
}

/// A job named `job` with a single node, `train`.
pub fn training_job(train: TrainSpec) -> JobSpec {
    let kind = NodeKind::Train(Box::new(train));
    let name = "train".parse().expect("a valid name");
    let id = "job".parse().expect("a valid name");
    JobSpec { id, nodes: vec![Node { name, after: vec![], retries: 0, kind }] }
}
