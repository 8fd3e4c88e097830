//! The training step that everybody runs: the same model, data, graph and session settings.

use std::{fs, path::Path};

use anyhow::Result;
use syncline::Loss;
use syncline_onnx::{SplitMix64, mlp};
use syncline_runtime::Runtime;
use syncline_scheduler::spec::{DataSpec, PolicyRule, PolicySpec, Source};
use syncline_workers::submit::{JobGraph, Model, PreparedJob, Training, prepare};

use crate::training_step::{LEARNING_RATE, RULE};

const SIZES: [usize; 4] = [784, 512, 256, 10];
const CLASSES: u64 = 10;

/// One size of step.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub batch: usize,
    /// Training samples; a multiple of the batch.
    pub rows: usize,
    /// Steps of one measurement.
    pub steps: usize,
    /// Steps before the clock starts.
    pub warm: usize,
}

/// Random images and labels in the format of MNIST, written where every process finds them.
pub fn write_data(case: &Case, dir: &Path) -> Result<DataSpec> {
    let (images, labels) =
        (dir.join(format!("{}-images", case.name)), dir.join(format!("{}-labels", case.name)));
    let mut random = SplitMix64::new(1);
    let rows = u32::try_from(case.rows)?.to_be_bytes();
    let side = 28u32.to_be_bytes();
    let mut pixels = [[0, 0, 8, 3], rows, side, side].concat();
    pixels.extend((0..case.rows * SIZES[0] / 8).flat_map(|_| random.next_u64().to_le_bytes()));
    let mut answers = [[0, 0, 8, 1], rows].concat();
    answers.extend((0..case.rows).map(|_| (random.next_u64() % CLASSES) as u8));
    fs::write(&images, pixels)?;
    fs::write(&labels, answers)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let source = Source::Idx { images: text(&images), labels: text(&labels) };
    Ok(DataSpec { scale: 1.0 / 255.0, ..DataSpec::new(source) })
}

/// The job that trains this model for at least `case.steps` steps.
pub fn job(runtime: &Runtime, id: &str, case: &Case, data: &DataSpec) -> Result<PreparedJob> {
    let model = Model::forward(mlp(&SIZES, 0).to_bytes(), Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, data.clone()).with(|s| {
        s.optimizer = RULE;
        s.learning_rate = LEARNING_RATE;
        s.policy = PolicySpec::new(PolicyRule::Asp);
        s.batch = case.batch as u32;
        s.epochs = case.steps.div_ceil(case.rows / case.batch) as u32;
    });
    Ok(prepare(runtime, &{
        let mut job = JobGraph::new(id);
        job.train("train", training);
        job
    })?)
}
