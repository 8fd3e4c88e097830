//! A step of the training graph: one execution, or several of one thread each on parts of the batch, each of
//! these at once or in pieces.
//!
//! ONNX Runtime divides many operators badly among threads. Executions that share nothing use them better,
//! and loss and gradient are weighted means, so that those of the parts make those of the batch, see
//! `batch_mean`. That is exact up to rounding unless samples meet inside the model: BatchNormalization sees
//! the statistics of a part. What draws random numbers draws other ones in every part.
//!
//! A batch that does not fit into memory at once is computed in pieces, one after the other: [`replica`],
//! [`BatchPieces`].
//!
//! Cost of N parts: N - 1 threads that start and end, and one pass over N sets of gradients. One execution
//! lends what ONNX Runtime has written: nothing is copied. One pass over the gradients for each piece.

#[cfg(test)]
mod piece_tests;
mod replica;
#[cfg(test)]
mod tests;

use std::{panic::resume_unwind, ptr::NonNull, sync::Arc, thread};

use syncline_autodiff::{GRAD_SUFFIX, LOSS, LOSS_WEIGHT, NEXT_SUFFIX};
use syncline_onnx::ElementType;
use syncline_ps::client::GradientArea;
use syncline_rpc::threads;
use syncline_runtime::{
    Device, ExecOptions, Executable, OutputMemory, OutputPlace, Outputs, Runtime, TensorView,
};

use super::{
    batch_mean::batch_mean,
    batch_pieces::BatchPieces,
    draws::DrawStream,
    error::WorkerError,
    parameters::{Parameters, Tensor},
};
use replica::{Batch, Pushed, PushedOutputs, Replica};

pub(super) use replica::PieceWatch;

/// Inputs of the graph, by name.
pub(super) type Inputs<'a> = Vec<(&'a str, TensorView<'a>)>;

/// How batches are cut on a worker.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchCut {
    /// Into a part for each thread of a CPU, side by side.
    pub split: bool,
    /// Most samples that are computed on at once, all parts together; `None`: any number.
    pub at_once: Option<usize>,
}

/// The sessions of one training graph, one for each part of a batch.
pub(super) struct Replicas {
    replicas: Vec<Replica>,
    at_once: Option<usize>,
    watch: PieceWatch,
    pushed: PushedOutputs,
    /// What is pushed, one after the other, of a batch in parts.
    merged: Vec<f32>,
}

/// Memory that shards map, to which ONNX Runtime writes gradients.
#[derive(Debug)]
struct SharedGradients(Arc<GradientArea>);

// SAFETY: the area gives the same floats as long as it lives. It is given to the one session of a job, and to
// nobody else; a push from there has been acknowledged before the next step begins, or its job is given up.
// Shards only read.
#[expect(unsafe_code, reason = "ONNX Runtime writes through a pointer that no borrow protects")]
unsafe impl OutputMemory for SharedGradients {
    fn base(&self) -> NonNull<f32> {
        self.0.base()
    }

    fn elements(&self) -> usize {
        self.0.elements()
    }
}

/// What a step gave.
pub(super) struct Step<'s> {
    pub loss: f32,
    pub weight: f32,
    values: Values<'s>,
    pushed: &'s [Pushed],
}

enum Values<'s> {
    Lent(Outputs<'s>),
    Merged(&'s [f32]),
}

impl Replicas {
    /// Loads the graph: once, or once per thread of a CPU if batches are to be split.
    pub(super) fn new(
        runtime: &Runtime,
        graph: &[u8],
        exec: &ExecOptions,
        cut: BatchCut,
        params: &Parameters,
        draws: DrawStream,
    ) -> Result<Self, WorkerError> {
        let (mut exec, mut count) = (exec.clone(), 1);
        if cut.split && exec.device == Device::Cpu {
            (count, exec.intra_threads) = (exec.intra_threads, 1);
        }
        let load = |part: u32| -> Result<Replica, WorkerError> {
            let own = DrawStream { part, ..draws }.graph(graph)?;
            Ok(Replica::new(Executable::new(runtime, own.as_deref().unwrap_or(graph), &exec)?))
        };
        let replicas = (0..count as u32).map(load).collect::<Result<Vec<_>, _>>()?;
        let names = replicas.first().map(|replica| replica.session.output_names()).unwrap_or_default();
        let pushed = pushed(names, params)?;
        let (at_once, watch) = (cut.at_once, PieceWatch::default());
        Ok(Self { replicas, at_once, watch, pushed, merged: Vec::new() })
    }

    /// Has `watch` follow batches in pieces.
    pub(super) fn watched_by(self, watch: PieceWatch) -> Self {
        Self { watch, ..self }
    }

    /// Whether every batch is computed as a whole, by one session.
    pub(super) fn is_one(&self) -> bool {
        self.replicas.len() == 1
    }

    /// Has what is pushed written to memory that shards read, one behind the other: nothing of it is copied
    /// then. Batches in parts stay where they are, and so does what has no shape of its own.
    pub(super) fn write_into(
        &mut self,
        area: Arc<GradientArea>,
        params: &Parameters,
    ) -> Result<(), WorkerError> {
        let ([replica], false) = (&mut self.replicas[..], self.pushed.all.is_empty()) else { return Ok(()) };
        let session = &mut replica.session;
        let (names, types) = (session.output_names().to_vec(), session.types());
        let fixed =
            self.pushed.all.iter().zip(&params.tensors).map(|(pushed, Tensor { shape, range, .. })| {
                let name = &names[pushed.output];
                let ty = types.get(name).filter(|ty| ty.element == ElementType::F32)?;
                let place = OutputPlace { name, shape, start: range.start as usize };
                (ty.fixed_shape()? == *shape).then_some(place)
            });
        let Some(places) = fixed.collect::<Option<Vec<_>>>() else { return Ok(()) };
        Ok(session.place_outputs(Arc::new(SharedGradients(area)), &places)?)
    }

    /// The parameters have other sizes from here on: other rows of tables.
    pub(super) fn resize(&mut self, params: &Parameters) {
        for (pushed, tensor) in self.pushed.all.iter_mut().zip(&params.tensors) {
            pushed.elements = tensor.range.len() as usize;
        }
    }

    /// Computes on `samples`, inputs with a row for each sample, and `rest`, which every part needs:
    /// parameters and buffers in layout order, then others. A batch with fewer samples than parts stays
    /// in one.
    pub(super) fn run(&mut self, samples: &Inputs<'_>, rest: &Inputs<'_>) -> Result<Step<'_>, WorkerError> {
        let Self { replicas, at_once, watch, pushed, merged } = self;
        let rows = samples.first().and_then(|(_, view)| view.shape().first()).copied().unwrap_or(0);
        let cut = BatchPieces::of(rows, replicas.len(), *at_once);
        if cut.is_whole() {
            let inputs: Inputs<'_> = samples.iter().chain(rest).copied().collect();
            let outputs = replicas[0].session.run(&inputs)?;
            let (loss, weight) = (outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
            return Ok(Step { loss, weight, values: Values::Lent(outputs), pushed: &pushed.all });
        }
        let (pushed, batch) = (&*pushed, Batch { samples, rest, pushed, watch });
        if cut.parts == 1 {
            let done = replicas[0].run(batch, cut.part(0))?;
            let (loss, weight) = (done.mean.loss(), done.mean.weight());
            return Ok(Step { loss, weight, values: Values::Lent(done.outputs), pushed: &pushed.all });
        }
        let done = thread::scope(|scope| {
            let mut replicas = replicas.iter_mut().zip(0..cut.parts);
            let first = replicas.next();
            let others = replicas
                .map(|(replica, part)| {
                    threads::spawn_scoped(scope, "replica", move || replica.run(batch, cut.part(part)))
                })
                .collect::<Result<Vec<_>, _>>()?;
            let first = first.map(|(replica, part)| replica.run(batch, cut.part(part)));
            let others =
                others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            first.into_iter().chain(others).collect::<Result<Vec<_>, _>>()
        })?;
        let parts = done.iter().map(|done| done.part(&pushed.all)).collect::<Result<Vec<_>, _>>()?;
        let (loss, weight) = batch_mean(&parts, merged);
        Ok(Step { loss, weight, values: Values::Merged(merged), pushed: &pushed.all })
    }
}

impl Step<'_> {
    /// What is pushed, in layout order: gradients, then the buffers' new values.
    pub(super) fn pushed(&self) -> Result<Vec<&[f32]>, WorkerError> {
        match self.values {
            Values::Lent(ref outputs) => self.pushed.iter().map(|pushed| pushed.of(outputs)).collect(),
            Values::Merged(mut rest) => {
                let next = |pushed: &Pushed| rest.split_off(..pushed.elements).unwrap_or_default();
                Ok(self.pushed.iter().map(next).collect())
            }
        }
    }
}

/// Where the session's outputs have what is pushed.
fn pushed(outputs: &[String], params: &Parameters) -> Result<PushedOutputs, WorkerError> {
    let slot = |(index, Tensor { name, range, .. }): (usize, &Tensor)| {
        let suffix = if index < params.trained { GRAD_SUFFIX } else { NEXT_SUFFIX };
        let output = format!("{name}{suffix}");
        let found = outputs.iter().position(|known| *known == output);
        let at = found.ok_or_else(|| WorkerError::Graph { what: format!("it has no output `{output}`") })?;
        Ok(Pushed { parameter: name.clone(), output: at, elements: range.len() as usize })
    };
    let all = params.tensors.iter().enumerate().map(slot).collect::<Result<Vec<_>, WorkerError>>()?;
    let names = all.iter().take(params.trained).map(|pushed| pushed.parameter.clone()).collect();
    Ok(PushedOutputs { all, trained: params.trained, names })
}
