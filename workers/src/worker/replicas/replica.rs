//! One session of a training graph, which computes its part of a batch at once or in pieces, one after the
//! other.
//!
//! Memory of a step is that of one piece. Gradients of pieces are averaged, see [`PieceMean`]: the first is
//! kept, those that follow are added to it, and to the last the others are added where it lies, so that what
//! shards read is written there. Running statistics go from piece to piece, as with gradient accumulation in
//! PyTorch, and what draws random numbers draws other ones for each piece.

use std::{collections::HashSet, ops::Range};

use syncline_autodiff::{LOSS, LOSS_WEIGHT};
use syncline_onnx::TensorView;
use syncline_ps::{PsError, client::CancelToken};
use syncline_runtime::{Executable, Outputs};

use super::{
    super::{batch_mean::Part, error::WorkerError, piece_mean::PieceMean, task_timer::TaskTimer},
    Inputs,
};

/// A session, and what it keeps from piece to piece.
pub(super) struct Replica {
    pub session: Executable,
    /// Of the pieces before the last: their mean gradients, then the running statistics that they left.
    /// Empty until a batch comes in pieces.
    so_far: Vec<f32>,
}

/// An output that is pushed.
pub(super) struct Pushed {
    pub parameter: String,
    /// Position among the session's outputs.
    pub output: usize,
    pub elements: usize,
}

/// What is pushed, in layout order: gradients, then the new values of buffers.
pub(super) struct PushedOutputs {
    pub all: Vec<Pushed>,
    /// How many of them are gradients.
    pub trained: usize,
    /// Names of the parameters that these are of: one step of an optimizer lies between two of their values,
    /// no piece does.
    pub names: HashSet<String>,
}

/// Who follows a batch in pieces from one to the next, or data that is read.
#[derive(Clone, Default)]
pub(in super::super) struct PieceWatch {
    /// Ends it between two pieces.
    pub cancel_token: CancelToken,
    /// Is told that it goes on.
    pub timer: TaskTimer,
}

/// What every part of a batch is computed from.
#[derive(Clone, Copy)]
pub(super) struct Batch<'b> {
    /// Inputs with a row for each sample.
    pub samples: &'b Inputs<'b>,
    /// Parameters and buffers in layout order, then what else every part needs.
    pub rest: &'b Inputs<'b>,
    pub pushed: &'b PushedOutputs,
    pub watch: &'b PieceWatch,
}

/// What a part of a batch gave.
pub(super) struct Computed<'s> {
    pub outputs: Outputs<'s>,
    pub mean: PieceMean,
    samples: usize,
}

impl Replica {
    pub(super) fn new(session: Executable) -> Self {
        Self { session, so_far: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> &[f32] {
        &self.so_far
    }

    /// Computes on the pieces of a part on the calling thread; at least one of them.
    pub(super) fn run<'s>(
        &'s mut self,
        batch: Batch<'_>,
        mut pieces: impl DoubleEndedIterator<Item = Range<usize>>,
    ) -> Result<Computed<'s>, WorkerError> {
        let Self { session, so_far } = self;
        let (mut mean, mut samples) = (PieceMean::default(), 0);
        let last = pieces.next_back().unwrap_or_default();
        for rows in pieces {
            let before = (samples > 0).then_some(&so_far[..]);
            let outputs = batch.run(session, rows.clone(), before)?;
            batch.keep(&outputs, &mut mean, rows.len(), so_far)?;
            samples += rows.len();
            batch.watch.goes_on()?;
        }
        let before = (samples > 0).then_some(&so_far[..]);
        let mut outputs = batch.run(session, last.clone(), before)?;
        batch.finish(&mut outputs, &mut mean, last.len(), before)?;
        Ok(Computed { outputs, mean, samples: samples + last.len() })
    }
}

impl PieceWatch {
    /// A piece is done that is not the last one.
    pub(in super::super) fn goes_on(&self) -> Result<(), WorkerError> {
        if self.cancel_token.is_canceled() {
            return Err(PsError::Canceled.into());
        }
        self.timer.progressed();
        Ok(())
    }
}

impl Batch<'_> {
    /// Runs one piece. `before`: what those before it left; `None` for the first one, for which everything is
    /// new to the device.
    fn run<'s>(
        self,
        session: &'s mut Executable,
        rows: Range<usize>,
        before: Option<&[f32]>,
    ) -> Result<Outputs<'s>, WorkerError> {
        let shape = |view: &TensorView<'_>| -> Vec<usize> {
            [rows.len()].into_iter().chain(view.shape().iter().skip(1).copied()).collect()
        };
        let shapes: Vec<_> = self.samples.iter().map(|(_, view)| shape(view)).collect();
        let of_samples = self.samples.iter().zip(&shapes);
        let of_samples = of_samples.map(|((name, view), shape)| (*name, view.rows(rows.start, shape)));
        let mut inputs: Inputs<'_> = of_samples.chain(self.rest.iter().copied()).collect();
        let Some(before) = before else { return Ok(session.run(&inputs)?) };
        let mut statistics = before.get(self.pushed.gradient_elements()..).unwrap_or_default();
        let (at, buffers) = (self.samples.len() + self.pushed.trained, self.pushed.buffers());
        for ((_, view), buffer) in inputs.iter_mut().skip(at).zip(buffers) {
            let data = statistics.split_off(..buffer.elements).unwrap_or_default();
            *view = TensorView::F32 { shape: view.shape(), data };
        }
        Ok(session.run_changed(&inputs, |name| !self.pushed.names.contains(name))?)
    }

    /// Takes a piece that is not the last one into `so_far`.
    fn keep(
        self,
        outputs: &Outputs<'_>,
        mean: &mut PieceMean,
        samples: usize,
        so_far: &mut Vec<f32>,
    ) -> Result<(), WorkerError> {
        let is_first = *mean == PieceMean::default();
        let shares = mean.take(samples, outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
        if is_first {
            so_far.clear();
            for pushed in &self.pushed.all {
                so_far.extend_from_slice(pushed.of(outputs)?);
            }
            return Ok(());
        }
        let mut rest = &mut so_far[..];
        for (n, pushed) in self.pushed.all.iter().enumerate() {
            let values = pushed.of(outputs)?;
            let kept = rest.split_off_mut(..values.len()).unwrap_or_default();
            if n < self.pushed.trained { shares.add(kept, values) } else { kept.copy_from_slice(values) }
        }
        Ok(())
    }

    /// Adds what the pieces before the last one gave to that one, where it lies; its running statistics are
    /// those of the batch.
    fn finish(
        self,
        outputs: &mut Outputs<'_>,
        mean: &mut PieceMean,
        samples: usize,
        before: Option<&[f32]>,
    ) -> Result<(), WorkerError> {
        let shares = mean.take(samples, outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
        let Some(mut before) = before else { return Ok(()) };
        for pushed in self.pushed.gradients() {
            pushed.of(outputs)?;
            let kept = before.split_off(..pushed.elements).unwrap_or_default();
            shares.add_before(outputs.f32_at_mut(pushed.output)?, kept);
        }
        Ok(())
    }
}

impl Computed<'_> {
    /// This part, to be averaged with others.
    pub(super) fn part(&self, pushed: &[Pushed]) -> Result<Part<'_>, WorkerError> {
        let tensors = pushed.iter().map(|pushed| pushed.of(&self.outputs)).collect::<Result<_, _>>()?;
        let (loss, weight) = (self.mean.loss(), self.mean.weight());
        Ok(Part { samples: self.samples, loss, weight, tensors })
    }
}

impl PushedOutputs {
    fn gradients(&self) -> &[Pushed] {
        &self.all[..self.trained]
    }

    fn buffers(&self) -> &[Pushed] {
        &self.all[self.trained..]
    }

    fn gradient_elements(&self) -> usize {
        self.gradients().iter().map(|pushed| pushed.elements).sum()
    }
}

impl Pushed {
    /// The output's numbers; an error if they do not lie as the parameter does.
    pub(super) fn of<'o>(&self, outputs: &'o Outputs<'_>) -> Result<&'o [f32], WorkerError> {
        let values = outputs.f32_at(self.output)?;
        if values.len() == self.elements {
            return Ok(values);
        }
        let (name, found, expected) = (&self.parameter, values.len(), self.elements);
        let what = format!("the output for `{name}` has {found} elements, expected {expected}");
        Err(WorkerError::Graph { what })
    }
}
