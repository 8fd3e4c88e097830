//! A step of the training graph: one execution, or several of one thread each on parts of the batch.
//!
//! ONNX Runtime divides many operators badly among threads. Executions that share nothing use them better, and loss and
//! gradient are weighted means, so that those of the parts make those of the batch, see `batch_mean`. That is exact up to
//! rounding unless samples meet inside the model: BatchNormalization sees the statistics of a part. What draws random numbers
//! draws other ones in every part.
//!
//! Cost of N parts: N - 1 threads that start and end, and one pass over N sets of gradients. One execution lends what
//! ONNX Runtime has written: nothing is copied.

use std::{ops::Range, panic::resume_unwind, ptr::NonNull, sync::Arc, thread};

use syncline_autodiff::{GRAD_SUFFIX, LOSS, LOSS_WEIGHT, NEXT_SUFFIX};
use syncline_onnx::ElementType;
use syncline_ps::client::GradientArea;
use syncline_runtime::{
    Device, ExecOptions, Executable, OutputMemory, OutputPlace, Outputs, Runtime, TensorView,
};
use syncline_scheduler::spec::ElementRange;

use super::{
    batch_mean::{Part, batch_mean},
    draws::DrawStream,
    error::WorkerError,
    parameters::Parameters,
};

/// Inputs of the graph, by name.
pub(super) type Inputs<'a> = Vec<(&'a str, TensorView<'a>)>;

/// The sessions of one training graph, one for each part of a batch.
pub(super) struct Replicas {
    sessions: Vec<Executable>,
    pushed: Vec<Pushed>,
    /// What is pushed, one after the other, of a batch in parts.
    merged: Vec<f32>,
}

/// Memory that shards map, to which ONNX Runtime writes gradients.
#[derive(Debug)]
struct SharedGradients(Arc<GradientArea>);

// SAFETY: the area gives the same floats as long as it lives. It is given to the one session of a job, and to nobody else; a
// push from there has been acknowledged before the next step begins, or its job is given up. Shards only read.
#[expect(unsafe_code, reason = "ONNX Runtime writes through a pointer that no borrow protects")]
unsafe impl OutputMemory for SharedGradients {
    fn base(&self) -> NonNull<f32> {
        self.0.base()
    }

    fn elements(&self) -> usize {
        self.0.elements()
    }
}

/// An output that is pushed.
struct Pushed {
    parameter: String,
    /// Position among the session's outputs.
    output: usize,
    elements: usize,
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
        split_batch: bool,
        params: &Parameters,
        draws: DrawStream,
    ) -> Result<Self, WorkerError> {
        let (mut exec, mut count) = (exec.clone(), 1);
        if split_batch && exec.device == Device::Cpu {
            (count, exec.intra_threads) = (exec.intra_threads, 1);
        }
        let load = |part: u32| -> Result<Executable, WorkerError> {
            let own = DrawStream { part, ..draws }.graph(graph)?;
            Ok(Executable::new(runtime, own.as_deref().unwrap_or(graph), &exec)?)
        };
        let sessions = (0..count as u32).map(load).collect::<Result<Vec<_>, _>>()?;
        let names = sessions.first().map(Executable::output_names).unwrap_or_default();
        let pushed = pushed(names, params)?;
        Ok(Self { sessions, pushed, merged: Vec::new() })
    }

    /// Has what is pushed written to memory that shards read, one behind the other: nothing of it is copied then. Batches in
    /// parts stay where they are, and so does what has no shape of its own.
    pub(super) fn write_into(
        &mut self,
        area: Arc<GradientArea>,
        params: &Parameters,
    ) -> Result<(), WorkerError> {
        let ([session], false) = (&mut self.sessions[..], self.pushed.is_empty()) else { return Ok(()) };
        let (names, types) = (session.output_names().to_vec(), session.types());
        let fixed = self.pushed.iter().zip(&params.tensors).map(|(pushed, (_, shape, range))| {
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
        for (pushed, (.., range)) in self.pushed.iter_mut().zip(&params.tensors) {
            pushed.elements = range.len() as usize;
        }
    }

    /// Computes on `samples`, inputs with a row for each sample, and `rest`, which every part needs. A batch with fewer
    /// samples than parts stays whole.
    pub(super) fn run(&mut self, samples: &Inputs<'_>, rest: &Inputs<'_>) -> Result<Step<'_>, WorkerError> {
        let Self { sessions, pushed, merged } = self;
        let rows = samples.first().and_then(|(_, view)| view.shape().first()).copied().unwrap_or(0);
        let parts = if rows < sessions.len() { 1 } else { sessions.len() };
        if parts == 1 {
            let inputs: Inputs<'_> = samples.iter().chain(rest).copied().collect();
            let outputs = sessions[0].run(&inputs)?;
            let (loss, weight) = (outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
            return Ok(Step { loss, weight, values: Values::Lent(outputs), pushed });
        }
        let ranges = (0..parts).map(|part| part * rows / parts..(part + 1) * rows / parts);
        let outputs = thread::scope(|scope| {
            let mut replicas = sessions.iter_mut().zip(ranges.clone());
            let first = replicas.next();
            let others: Vec<_> = replicas
                .map(|(session, rows)| scope.spawn(move || run_part(session, samples, rest, rows)))
                .collect();
            let first = first.map(|(session, rows)| run_part(session, samples, rest, rows));
            let others =
                others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            first.into_iter().chain(others).collect::<Result<Vec<_>, _>>()
        })?;
        let done = outputs.iter().zip(ranges).map(|(outputs, rows)| part(outputs, rows.len(), pushed));
        let done = done.collect::<Result<Vec<_>, _>>()?;
        let (loss, weight) = batch_mean(&done, merged);
        Ok(Step { loss, weight, values: Values::Merged(merged), pushed })
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

impl Pushed {
    /// The output's numbers; an error if they do not lie as the parameter does.
    fn of<'o>(&self, outputs: &'o Outputs<'_>) -> Result<&'o [f32], WorkerError> {
        let values = outputs.f32_at(self.output)?;
        if values.len() == self.elements {
            return Ok(values);
        }
        let (name, found, expected) = (&self.parameter, values.len(), self.elements);
        let what = format!("the output for `{name}` has {found} elements, expected {expected}");
        Err(WorkerError::Graph { what })
    }
}

/// Where the session's outputs have what is pushed.
fn pushed(outputs: &[String], params: &Parameters) -> Result<Vec<Pushed>, WorkerError> {
    let slot = |(index, (name, _, range)): (usize, &(String, _, ElementRange))| {
        let suffix = if index < params.trained { GRAD_SUFFIX } else { NEXT_SUFFIX };
        let output = format!("{name}{suffix}");
        let found = outputs.iter().position(|known| *known == output);
        let at = found.ok_or_else(|| WorkerError::Graph { what: format!("it has no output `{output}`") })?;
        Ok(Pushed { parameter: name.clone(), output: at, elements: range.len() as usize })
    };
    params.tensors.iter().enumerate().map(slot).collect()
}

/// Runs one part of the batch on the calling thread.
fn run_part<'s>(
    session: &'s mut Executable,
    samples: &Inputs<'_>,
    rest: &Inputs<'_>,
    rows: Range<usize>,
) -> Result<Outputs<'s>, WorkerError> {
    let shape = |view: &TensorView<'_>| -> Vec<usize> {
        [rows.len()].into_iter().chain(view.shape().iter().skip(1).copied()).collect()
    };
    let shapes: Vec<_> = samples.iter().map(|(_, view)| shape(view)).collect();
    let part = samples.iter().zip(&shapes).map(|((name, view), shape)| (*name, view.rows(rows.start, shape)));
    let inputs: Inputs<'_> = part.chain(rest.iter().copied()).collect();
    Ok(session.run(&inputs)?)
}

/// What a run on one part gave.
fn part<'o>(outputs: &'o Outputs<'_>, samples: usize, pushed: &[Pushed]) -> Result<Part<'o>, WorkerError> {
    let (loss, weight) = (outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
    let tensors = pushed.iter().map(|pushed| pushed.of(outputs)).collect::<Result<_, _>>()?;
    Ok(Part { samples, loss, weight, tensors })
}

#[cfg(test)]
mod tests;
