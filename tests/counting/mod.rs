//! A model that counts: the gradient of every weight is 1, so that with SGD and learning rate 1 every weight
//! is minus the number of pushes that were applied to it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;

use syncline_onnx as onnx;
use syncline_scheduler::spec::{DataSpec, PolicySpec, Source};
use syncline_workers::submit::{JobGraph, Model, Training};

/// Two chunks on each of two shards. More would cost each of many thousand steps the time to move them.
pub const WEIGHTS: usize = 140_000;

/// Six chunks over two shards: a push takes long enough to be torn between chunks and between shards.
pub const WEIGHTS_TO_TEAR: usize = 270_000;

/// `samples` imaginary samples in batches of `batch`.
pub fn job(id: &str, policy: PolicySpec, samples: u64, batch: u32, epochs: u32, seed: u64) -> JobGraph {
    job_of(id, training(WEIGHTS, policy, samples, batch, epochs).with(|s| s.seed = seed))
}

/// A job whose pushes are often torn by a death.
pub fn job_to_tear(
    id: &str,
    policy: PolicySpec,
    samples: u64,
    batch: u32,
    epochs: u32,
    seed: u64,
) -> JobGraph {
    job_of(id, training(WEIGHTS_TO_TEAR, policy, samples, batch, epochs).with(|s| s.seed = seed))
}

fn training(weights: usize, policy: PolicySpec, samples: u64, batch: u32, epochs: u32) -> Training {
    let data = DataSpec { train_samples: samples, ..DataSpec::new(Source::csv("nothing.csv")) };
    Training::new(Model::ready(onnx::counting(weights).to_bytes()), data).with(|s| {
        s.learning_rate = Some(1.0);
        s.policy = policy;
        s.batch = batch;
        s.epochs = epochs;
        s.min_workers = 1;
        // Its "gradient" counts; it is that of no loss.
        s.check = false;
    })
}

fn job_of(id: &str, training: Training) -> JobGraph {
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.snapshot("weights", &train);
    job
}

/// The counted pushes in a snapshot: minus the weights.
pub fn counts(snapshot: &Path) -> Vec<u64> {
    let bytes = std::fs::read(snapshot).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let weights = tensors.tensor("w").unwrap();
    assert!(matches!(*weights.shape(), [WEIGHTS | WEIGHTS_TO_TEAR]));
    let values: Vec<f32> =
        weights.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(values.iter().all(|v| *v <= 0.0 && v.fract() == 0.0));
    values.iter().map(|v| -v as u64).collect()
}
