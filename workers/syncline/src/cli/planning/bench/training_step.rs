//! The training step of a worker without a worker: the limit for whoever has to send gradients and weights
//! around.

use std::{error::Error, ops::Range, time::Duration};

use syncline_autodiff::GRAD_SUFFIX;
use syncline_ps::optim::{self, OptimizerState};
use syncline_runtime::{ExecOptions, Executable, Runtime, TensorView};
use syncline_scheduler::{
    samples::permutation,
    spec::{ElementRange, Optimizer, Parameter},
};
use syncline_workers::{
    data::{Batch, Dataset, ModelSignature},
    submit::PreparedJob,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

pub const RULE: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };
pub const LEARNING_RATE: f32 = 0.01;

/// A parameter: its name, its shape, and where its values lie.
type Tensor = (String, Vec<usize>, Range<usize>);

/// The step in this process, set up as a worker sets it up.
pub struct Step {
    session: Executable,
    /// Of what comes from the data: the input, then the label.
    names: Vec<String>,
    tensors: Vec<Tensor>,
    /// Of what is trained: the output that holds its gradient, and where its values lie.
    grads: Vec<(usize, Range<usize>)>,
    set: Dataset,
    batch: Batch,
    order: Vec<u32>,
    next: usize,
    size: usize,
    pub values: Vec<f32>,
}

impl Step {
    pub fn new(runtime: &Runtime, prepared: &PreparedJob, batch: usize) -> Result<Self> {
        Self::with(runtime, prepared, batch, &ExecOptions::default())
    }

    pub fn with(
        runtime: &Runtime,
        prepared: &PreparedJob,
        batch: usize,
        options: &ExecOptions,
    ) -> Result<Self> {
        let (_, train) = prepared.spec.train().ok_or("the job trains nothing")?;
        let session = Executable::new(runtime, &prepared.blobs[&train.model.training_graph], options)?;
        let shape = |dims: &[u64]| dims.iter().map(|&d| d as usize).collect();
        let tensors: Vec<_> =
            train.model.layout.ranges().map(|(p, r)| (p.name.clone(), shape(&p.shape), bounds(r))).collect();
        let output =
            |name: &str| session.output_names().iter().position(|o| *o == format!("{name}{GRAD_SUFFIX}"));
        let trained = train.model.layout.ranges().filter(|(p, _)| p.is_trained());
        let grad = |(p, r): (&Parameter, _)| Some((output(&p.name)?, bounds(r)));
        let grads = trained.map(grad).collect::<Option<_>>().ok_or("gradients")?;
        let initial = prepared.blobs[&train.model.initial].chunks_exact(4);
        let values = initial.map(bytemuck::pod_read_unaligned).collect();
        let set = Dataset::open(&train.data, &ModelSignature::of(&train.model))?;
        let order = permutation(0, 0, set.len() as u32);
        let inputs = train.model.inputs.iter().map(|input| input.name.clone());
        let names = inputs.chain(train.model.label.clone()).collect();
        let filled = set.batch();
        Ok(Self { session, names, tensors, grads, batch: filled, set, order, next: 0, size: batch, values })
    }

    /// Computes the gradients of one batch again and again, with everything where the device reads it: the
    /// time of each.
    pub fn resident(&mut self, times: usize) -> Result<Vec<Duration>> {
        self.gather()?;
        let inputs = inputs(&self.names, &self.batch, &self.tensors, &self.values);
        Ok(self.session.bare_loop(&inputs, times)?)
    }

    /// The next batch.
    fn gather(&mut self) -> Result<()> {
        if self.next + self.size > self.order.len() {
            self.next = 0;
        }
        self.set.gather(&self.order[self.next..self.next + self.size], &mut self.batch)?;
        self.next += self.size;
        Ok(())
    }

    /// Computes the gradients of the next batch and lets `apply` use them.
    pub fn run<T>(&mut self, apply: impl FnOnce(&mut [f32], &[&[f32]]) -> T) -> Result<T> {
        self.gather()?;
        let inputs = inputs(&self.names, &self.batch, &self.tensors, &self.values);
        let outputs = self.session.run(&inputs)?;
        let gradients: Vec<&[f32]> = self
            .grads
            .iter()
            .map(|(output, _)| outputs.f32_at(*output))
            .collect::<std::result::Result<_, _>>()?;
        Ok(apply(&mut self.values, &gradients))
    }

    /// The bare loop's step: the optimizer in place, no network.
    pub fn bare(&mut self) -> Result<()> {
        let mut slots = OptimizerState::new(&RULE, 0);
        let ranges: Vec<Range<usize>> = self.grads.iter().map(|(_, range)| range.clone()).collect();
        self.run(|values, gradients| {
            for (gradient, range) in gradients.iter().zip(&ranges) {
                optim::step(&RULE, &mut values[range.clone()], &mut slots, gradient, LEARNING_RATE, 1.0);
            }
        })
    }
}

/// What the session reads: the batch and the parameters.
fn inputs<'a>(
    names: &'a [String],
    batch: &'a Batch,
    tensors: &'a [Tensor],
    values: &'a [f32],
) -> Vec<(&'a str, TensorView<'a>)> {
    let data = names.iter().map(String::as_str).zip(batch.inputs().chain(batch.label()));
    let parameter = |(name, shape, range): &'a Tensor| {
        (name.as_str(), TensorView::F32 { shape, data: &values[range.clone()] })
    };
    data.chain(tensors.iter().map(parameter)).collect()
}

fn bounds(range: ElementRange) -> Range<usize> {
    range.start as usize..range.end as usize
}
