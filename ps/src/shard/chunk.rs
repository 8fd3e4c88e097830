//! The unit of atomicity: 64 Ki parameters with their optimizer state, updated while the bytes are still in
//! cache.
//!
//! Buffers, such as running statistics, never see the optimizer. A worker sends what it computed for them, in
//! the place where gradients stand for parameters. A barrier sets them to the weighted mean; a push on its
//! own moves them towards what it brings by one over the number of workers, so that they follow at the same
//! pace under every policy and stay between the values that were sent (a variance cannot become negative,
//! however stale a push is).

mod rows;
#[cfg(test)]
mod tests;
mod values;

use std::{
    collections::{BTreeMap, TryReserveError},
    io::{self, Read, Write},
};

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    spec::Optimizer,
    sync::{PushMode, RoundRule},
};

pub(super) use rows::RoundEnd;
use values::ChunkValues;
pub(super) use values::SlotPart;

use super::{PushHeader, clip::DROPPED, framed::read_numbers};
use crate::optim::{self, OptimizerState, SliceRule};

/// Parameters in one chunk; the last chunk of a shard may be shorter.
pub const CHUNK_ELEMENTS: usize = 64 * 1024;
/// Bytes of one full chunk on the wire.
pub const CHUNK_BYTES: usize = CHUNK_ELEMENTS * size_of::<f32>();

/// What a saved chunk consists of, its numbers left out.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct ChunkHeader {
    values: u32,
    trained: u32,
    first: u32,
    second: u32,
    steps: u64,
    /// 0 where no round is open.
    round: u32,
    weight: f64,
}

impl ChunkHeader {
    /// Whether a chunk of so many elements, of which `optimizer` moves the first `trained`, can look like
    /// this.
    pub(super) fn is_of(&self, (elements, trained): (usize, usize), optimizer: &Optimizer) -> bool {
        let moment = |index: u64| if index < optimizer.moments() { trained } else { 0 };
        let found = [self.values, self.trained, self.first, self.second].map(|count| count as usize);
        found == [elements, trained, moment(0), moment(1)]
    }
}

/// One slice of a job's parameters.
pub(crate) struct Chunk {
    values: ChunkValues,
    /// How many of the values the optimizer moves; those behind are buffers.
    trained: usize,
    optimizer_state: OptimizerState,
    /// Weighted sum of what was pushed into the open round; empty until something is.
    round: Vec<f32>,
    /// Weight in `round`. Zero means that `round` holds leftovers.
    weight: f64,
    /// In a job with tables: what of `round` was pushed, as lengths by first element. The rest holds
    /// leftovers.
    touched: BTreeMap<u32, u32>,
}

impl Chunk {
    /// The optimizer moves the first `trained` of the values.
    pub(super) fn new(values: Vec<f32>, trained: usize, optimizer: &Optimizer) -> Self {
        let optimizer_state = OptimizerState::new(optimizer, trained);
        let values = ChunkValues::new(values);
        Self { values, trained, optimizer_state, round: Vec::new(), weight: 0.0, touched: BTreeMap::new() }
    }

    pub(crate) fn values(&self) -> &[f32] {
        self.values.as_slice()
    }

    /// The slot in which its values lie, if they are lent.
    pub(super) fn slot(&self) -> Option<usize> {
        self.values.slot()
    }

    /// How many of the values the optimizer moves.
    pub(crate) fn trained(&self) -> usize {
        self.trained
    }

    pub(crate) fn optimizer_state(&self) -> &OptimizerState {
        &self.optimizer_state
    }

    /// The optimizer goes on with this state, which has the size that it has.
    pub(super) fn restore_optimizer(&mut self, state: OptimizerState) {
        self.optimizer_state = state;
    }

    /// A copy of its values and the optimizer's state, without the round. Fails if there is no memory for it.
    pub(super) fn copy(&self) -> Result<Self, TryReserveError> {
        let (first, second) = self.optimizer_state.moments();
        let steps = self.optimizer_state.steps();
        let optimizer_state = OptimizerState::restored(copied(first)?, copied(second)?, steps);
        let (values, trained) = (ChunkValues::new(copied(self.values())?), self.trained);
        Ok(Self {
            values,
            trained,
            optimizer_state,
            round: Vec::new(),
            weight: 0.0,
            touched: BTreeMap::new(),
        })
    }

    /// The open round, if there is one.
    fn open_round(&self) -> &[f32] {
        if self.weight > 0.0 { &self.round } else { &[] }
    }

    /// What [`Chunk::write`] writes.
    pub(super) fn head(&self) -> ChunkHeader {
        let (first, second) = self.optimizer_state.moments();
        ChunkHeader {
            values: self.values.len() as u32,
            trained: self.trained as u32,
            first: first.len() as u32,
            second: second.len() as u32,
            steps: self.optimizer_state.steps(),
            round: self.open_round().len() as u32,
            weight: self.weight,
        }
    }

    /// Writes its numbers.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (first, second) = self.optimizer_state.moments();
        for numbers in [self.values(), first, second, self.open_round()] {
            out.write_all(bytemuck::cast_slice(numbers))?;
        }
        Ok(())
    }

    /// Reads what [`Chunk::write`] wrote.
    pub(super) fn read(head: &ChunkHeader, from: &mut impl Read) -> io::Result<Self> {
        let most = CHUNK_ELEMENTS as u32;
        if head.trained > head.values || [head.values, head.first, head.second].iter().any(|n| *n > most) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk of impossible size"));
        }
        let has_weight = head.weight > 0.0;
        if !head.weight.is_finite() || head.round != if has_weight { head.values } else { 0 } {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a round of another size than its chunk"));
        }
        let mut numbers = |count: u32| read_numbers(count as usize, from);
        let values = ChunkValues::new(numbers(head.values)?);
        let optimizer_state =
            OptimizerState::restored(numbers(head.first)?, numbers(head.second)?, head.steps);
        let round = numbers(head.round)?;
        let (trained, touched) = (head.trained as usize, BTreeMap::new());
        Ok(Self { values, trained, optimizer_state, round, weight: head.weight, touched })
    }

    /// Takes in one push's part for this chunk. `share`: how far a push of its own moves a buffer. `to`: the
    /// slot that new values go to. Fails, having changed nothing, if there is no memory for the round.
    pub(super) fn apply_push(
        &mut self,
        rule: &SliceRule,
        header: &PushHeader,
        share: f32,
        to: Option<SlotPart>,
        pushed: &[f32],
    ) -> Result<(), TryReserveError> {
        if header.is_empty() {
            return Ok(());
        }
        let (gradient, computed) = pushed.split_at(self.trained);
        let PushHeader { learning_rate, scale, weight, .. } = *header;
        match header.mode {
            PushMode::Apply => {
                let step = rule.next(&mut self.optimizer_state, learning_rate, scale);
                let (trained, state) = (self.trained, &mut self.optimizer_state);
                self.values.rewrite(to, trained, |cut, values, buffers| {
                    step.run(values, state, cut.trained.start, &gradient[cut.trained]);
                    optim::lerp(buffers, &computed[cut.buffers], share);
                });
            }
            PushMode::Accumulate => {
                self.make_round()?;
                let add = if self.weight == 0.0 { optim::scale_into } else { optim::axpy };
                let (round, buffers) = self.round.split_at_mut(self.trained);
                add(round, gradient, weight * scale);
                add(buffers, computed, weight);
                self.weight += f64::from(weight);
            }
        }
        Ok(())
    }

    /// Takes memory for a round, once.
    fn make_round(&mut self) -> Result<(), TryReserveError> {
        if self.round.is_empty() {
            self.round.try_reserve_exact(self.values.len())?;
            self.round.resize(self.values.len(), 0.0);
        }
        Ok(())
    }

    /// Sum of squares of the mean of what was pushed, buffers left out; 0 if nothing with weight came.
    pub(super) fn round_squares(&self) -> f64 {
        if self.weight > 0.0 {
            optim::squares(&self.round[..self.trained]) / (self.weight * self.weight)
        } else {
            0.0
        }
    }

    /// Ends the round: the weighted mean of what was pushed, shortened by `clip`, becomes new values, which
    /// go to slot `to`. Nothing happens if nothing with weight came, or the round is [`DROPPED`].
    pub(super) fn close_round(
        &mut self,
        rule: &SliceRule,
        ends: RoundRule,
        learning_rate: f32,
        clip: f64,
        to: Option<SlotPart>,
    ) {
        if self.weight > 0.0 && clip != DROPPED {
            let (scale, of_buffers) = ((clip / self.weight) as f32, (1.0 / self.weight) as f32);
            let (round, computed) = self.round.split_at(self.trained);
            let (trained, state) = (self.trained, &mut self.optimizer_state);
            let step = match ends {
                RoundRule::Optimizer => Some(rule.next(state, learning_rate, scale)),
                RoundRule::Average => {
                    // The workers' own optimizers step now. One that steps here again does so far from where
                    // this state was made.
                    state.forget();
                    None
                }
            };
            self.values.rewrite(to, trained, |cut, values, buffers| {
                let round = &round[cut.trained.clone()];
                match &step {
                    Some(step) => step.run(values, state, cut.trained.start, round),
                    None => optim::axpy(values, round, -scale),
                }
                optim::scale_into(buffers, &computed[cut.buffers], of_buffers);
            });
        }
        self.weight = 0.0;
    }
}

fn copied(numbers: &[f32]) -> Result<Vec<f32>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(numbers.len())?;
    copy.extend_from_slice(numbers);
    Ok(copy)
}
