//! The training step that everybody runs: the same model, data, graph and session settings.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use syncline::Loss;
use syncline_autodiff::GRAD_SUFFIX;
use syncline_onnx::{SplitMix64, mlp};
use syncline_ps::optim::{self, OptimizerState};
use syncline_runtime::{ExecOptions, Executable, Runtime, TensorView};
use syncline_scheduler::{
    samples::permutation,
    spec::{DataSpec, Optimizer, PolicyRule, PolicySpec, Source},
};
use syncline_workers::{
    data::{Batch, Dataset, ModelSignature},
    submit::{JobGraph, Model, PreparedJob, Training, prepare},
};

pub const RULE: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };
pub const LEARNING_RATE: f32 = 0.01;
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

/// The step in this process, set up as a worker sets it up.
pub struct Step {
    session: Executable,
    /// Of what comes from the data: the input, then the label.
    names: Vec<String>,
    tensors: Vec<(String, Vec<usize>, std::ops::Range<usize>)>,
    grads: Vec<usize>,
    set: Dataset,
    batch: Batch,
    order: Vec<u32>,
    next: usize,
    size: usize,
    pub values: Vec<f32>,
}

impl Step {
    pub fn new(runtime: &Runtime, prepared: &PreparedJob, batch: usize) -> Result<Self> {
        let (_, train) = prepared.spec.train().context("a job that trains")?;
        let session =
            Executable::new(runtime, &prepared.blobs[&train.model.training_graph], &ExecOptions::default())?;
        let shape = |dims: &[u64]| dims.iter().map(|&d| d as usize).collect();
        let tensors: Vec<_> = train
            .model
            .layout
            .ranges()
            .map(|(p, r)| (p.name.clone(), shape(&p.shape), r.start as usize..r.end as usize))
            .collect();
        let output =
            |name: &str| session.output_names().iter().position(|o| *o == format!("{name}{GRAD_SUFFIX}"));
        let grads =
            tensors.iter().map(|(name, ..)| output(name)).collect::<Option<_>>().context("gradients")?;
        let initial = prepared.blobs[&train.model.initial].chunks_exact(4);
        let values = initial.map(bytemuck::pod_read_unaligned).collect();
        let set = Dataset::open(&train.data, &ModelSignature::of(&train.model))?;
        let order = permutation(0, 0, set.len() as u32);
        let inputs = train.model.inputs.iter().map(|input| input.name.clone());
        let names = inputs.chain(train.model.label.clone()).collect();
        let filled = set.batch();
        Ok(Self { session, names, tensors, grads, batch: filled, set, order, next: 0, size: batch, values })
    }

    /// Computes the gradients of the next batch and lets `apply` use them.
    pub fn run<T>(&mut self, apply: impl FnOnce(&mut [f32], &[&[f32]]) -> T) -> Result<T> {
        if self.next + self.size > self.order.len() {
            self.next = 0;
        }
        self.set.gather(&self.order[self.next..self.next + self.size], &mut self.batch)?;
        self.next += self.size;
        let names = self.names.iter().map(String::as_str);
        let mut inputs: Vec<_> = names.zip(self.batch.inputs().chain(self.batch.label())).collect();
        for (name, shape, range) in &self.tensors {
            inputs.push((name, TensorView::F32 { shape, data: &self.values[range.clone()] }));
        }
        let outputs = self.session.run(&inputs)?;
        let gradients: Vec<&[f32]> =
            self.grads.iter().map(|&i| outputs.f32_at(i)).collect::<Result<_, _>>()?;
        Ok(apply(&mut self.values, &gradients))
    }

    /// The bare loop's step: the optimizer in place, no network.
    pub fn bare(&mut self) -> Result<()> {
        let mut slots = OptimizerState::new(&RULE, 0);
        self.run(|values, gradients| {
            let mut at = 0;
            for gradient in gradients {
                let part = &mut values[at..at + gradient.len()];
                optim::step(&RULE, part, &mut slots, gradient, LEARNING_RATE, 1.0);
                at += gradient.len();
            }
        })
    }
}
