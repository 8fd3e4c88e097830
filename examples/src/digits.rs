//! Handwritten digits: 8x8 images, ten classes, a small multi-layer perceptron.

use std::path::PathBuf;

use syncline_scheduler::spec::{DataSpec, Optimizer, PolicyRule, PolicySpec, Source, Split};
use syncline_workers::{
    onnx,
    submit::{JobGraph, Model, Training},
};

/// Passes over the training set that reach the accuracy the README promises.
pub const EPOCHS: u32 = 40;
const BATCH: u32 = 32;
const HIDDEN: usize = 256;

/// The file that comes with the repository.
pub fn data() -> DataSpec {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/digits.csv.gz");
    let source = Source::Csv { path: path.to_string_lossy().into_owned(), label_columns: 1, skip_lines: 0 };
    DataSpec { scale: 1.0 / 16.0, split: Split::TestEvery(5), ..DataSpec::new(source) }
}

/// The learning rate that suits a policy. Where a round's gradients are averaged into one update, it takes larger
/// steps.
pub fn learning_rate(policy: PolicySpec) -> f32 {
    match policy.rule {
        PolicyRule::Bsp | PolicyRule::LbBsp(_) => 0.1,
        PolicyRule::ElasticBsp(options) | PolicyRule::ElasticLb(options, _) if options.average => 0.1,
        PolicyRule::LocalSgd { .. } => 0.1,
        // The outer momentum multiplies the inner steps.
        PolicyRule::DiLoCo { .. } => 0.02,
        // `auto` multiplies by the number of workers where it averages.
        PolicyRule::Asp
        | PolicyRule::Ssp { .. }
        | PolicyRule::Dssp { .. }
        | PolicyRule::ElasticBsp(_)
        | PolicyRule::ElasticLb(..)
        | PolicyRule::Auto(..) => 0.03,
    }
}

/// Train, then test and save.
pub fn job(id: &str, policy: PolicySpec, epochs: u32, seed: u64, workers: u32) -> JobGraph {
    let model = onnx::mlp(&[64, HIDDEN, 10], seed).to_bytes();
    let training = Training::new(Model::forward(model, "softmax-cross-entropy"), data()).with(|s| {
        s.optimizer = Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay: 1e-3 };
        s.learning_rate = learning_rate(policy);
        s.decay = syncline_scheduler::spec::Decay::Cosine;
        s.policy = policy;
        s.batch = BATCH;
        s.epochs = epochs;
        s.seed = seed;
        s.min_workers = workers;
    });
    JobGraph::new(id).train("train", training).evaluate("test", &["train"]).snapshot("weights", &["train"])
}
