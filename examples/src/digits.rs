//! Handwritten digits: 8x8 images, ten classes, a small multi-layer perceptron.

use syncline::{DataSpec, Decay, JobGraph, Loss, Model, Optimizer, Source, Split, Training, onnx::mlp};

use crate::{Run, files};

/// Passes over the training set that reach the accuracy the README promises.
pub const EPOCHS: u32 = 40;
const BATCH: u32 = 32;
const HIDDEN: usize = 256;

/// The file that comes with the repository.
pub fn data() -> DataSpec {
    let source = Source::csv(files::samples("digits.csv.gz"));
    DataSpec { scale: 1.0 / 16.0, split: Split::TestEvery(5), ..DataSpec::new(source) }
}

/// Train, then test and save.
pub fn job(run: &Run<'_>) -> JobGraph {
    let model = mlp(&[64, HIDDEN, 10], run.seed).to_bytes();
    let training = Training::new(Model::forward(model, Loss::SoftmaxCrossEntropy), data()).with(|s| {
        run.set(s, 0.1);
        s.optimizer = Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay: 1e-3 };
        s.decay = Decay::Cosine;
        s.batch = BATCH;
    });
    JobGraph::of_training(run.id, training)
}
