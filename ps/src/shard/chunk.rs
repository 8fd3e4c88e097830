//! The unit of atomicity: 64 Ki parameters with their optimizer state, updated while the bytes are still in cache.
//!
//! Buffers, such as running statistics, never see the optimizer. A worker sends what it computed for them, in the
//! place where gradients stand for parameters. A barrier sets them to the weighted mean; a push on its own moves them
//! towards what it brings by one over the number of workers, so that they follow at the same pace under every policy
//! and stay between the values that were sent (a variance cannot become negative, however stale a push is).

mod rows;
mod values;

use std::{
    collections::{BTreeMap, TryReserveError},
    io::{self, Read, Write},
    ops::Range,
};

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    spec::Optimizer,
    sync::{PushMode, RoundRule},
};

pub(super) use rows::RoundEnd;
use values::ChunkValues;
pub(super) use values::SlotPart;

use super::{PushHeader, framed::read_numbers};
use crate::optim::{self, OptimizerState, StepKernel};

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
    pub(super) fn elements(&self) -> u64 {
        self.values.into()
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
    /// In a job with tables: what of `round` was pushed, as lengths by first element. The rest holds leftovers.
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
        if ![0, head.values].contains(&head.round) {
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

    /// Takes in one push's part for this chunk. `share`: how far a push of its own moves a buffer. `to`: the slot that new
    /// values go to. Fails, having changed nothing, if there is no memory for the round.
    pub(super) fn apply_push(
        &mut self,
        optimizer: &Optimizer,
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
                let step = StepKernel::next(optimizer, &mut self.optimizer_state, learning_rate, scale);
                let (trained, state) = (self.trained, &mut self.optimizer_state);
                self.values.rewrite(to, |start, block| {
                    let cut = Cut::of(trained, start, block.len());
                    let (values, buffers) = block.split_at_mut(cut.trained.len());
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

    /// Ends the round: the weighted mean of what was pushed, shortened by `clip`, becomes new values, which go to slot `to`.
    /// Nothing happens if nothing with weight came.
    pub(super) fn close_round(
        &mut self,
        optimizer: &Optimizer,
        rule: RoundRule,
        learning_rate: f32,
        clip: f64,
        to: Option<SlotPart>,
    ) {
        if self.weight > 0.0 {
            let (scale, of_buffers) = ((clip / self.weight) as f32, (1.0 / self.weight) as f32);
            let (round, computed) = self.round.split_at(self.trained);
            let (trained, state) = (self.trained, &mut self.optimizer_state);
            let step = match rule {
                RoundRule::Optimizer => Some(StepKernel::next(optimizer, state, learning_rate, scale)),
                RoundRule::Average => None,
            };
            self.values.rewrite(to, |start, block| {
                let cut = Cut::of(trained, start, block.len());
                let (values, buffers) = block.split_at_mut(cut.trained.len());
                let round = &round[cut.trained.clone()];
                match &step {
                    Some(step) => step.run(values, state, cut.trained.start, round),
                    None => optim::axpy(values, round, -scale),
                }
                optim::scale_into(buffers, &computed[cut.buffers], of_buffers);
            });
            self.weight = 0.0;
        }
    }
}

/// What of the trained elements of a chunk, and of its buffers behind them, lies in a block of it.
struct Cut {
    trained: Range<usize>,
    buffers: Range<usize>,
}

impl Cut {
    fn of(trained: usize, start: usize, elements: usize) -> Self {
        let end = start + elements;
        Self {
            trained: start.min(trained)..end.min(trained),
            buffers: start.saturating_sub(trained)..end.saturating_sub(trained),
        }
    }
}

fn copied(numbers: &[f32]) -> Result<Vec<f32>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(numbers.len())?;
    copy.extend_from_slice(numbers);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::transport::{Access, Mapping, Pages, sealed_memory};

    const SGD: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };

    fn header(mode: PushMode, weight: f32) -> PushHeader {
        PushHeader { learning_rate: 1.0, weight, scale: 1.0, skip: false, mode, covers: 1 }
    }

    fn into_round(weight: f32) -> PushHeader {
        header(PushMode::Accumulate, weight)
    }

    #[test]
    fn a_round_steps_once_along_the_weighted_mean_and_leaves_nothing_behind() {
        let mut chunk = Chunk::new(vec![0.0; 3], 3, &SGD);
        for round in 1..=2 {
            chunk.apply_push(&SGD, &into_round(3.0), 1.0, None, &[1.0; 3]).unwrap();
            chunk.apply_push(&SGD, &into_round(1.0), 1.0, None, &[5.0; 3]).unwrap();
            chunk.close_round(&SGD, RoundRule::Optimizer, 0.5, 1.0, None);
            assert_eq!(chunk.values(), [-(round as f32); 3]);
            assert_eq!(chunk.optimizer_state.steps(), round);
        }
    }

    #[test]
    fn an_averaged_round_moves_the_values_to_the_mean_and_no_optimizer_hears_of_it() {
        let adam =
            Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
        let mut chunk = Chunk::new(vec![8.0, -2.0], 2, &adam);
        let before = chunk.optimizer_state.clone();
        // Two workers ended at (4, 0) and (6, 6), the second after three times the weight.
        chunk.apply_push(&adam, &into_round(1.0), 1.0, None, &[4.0, -2.0]).unwrap();
        chunk.apply_push(&adam, &into_round(3.0), 1.0, None, &[2.0, -8.0]).unwrap();
        chunk.close_round(&adam, RoundRule::Average, 0.0, 1.0, None);
        assert_eq!(chunk.values(), [(4.0 + 3.0 * 6.0) / 4.0, (0.0 + 3.0 * 6.0) / 4.0]);
        assert_eq!(chunk.optimizer_state, before);
    }

    #[test]
    fn a_round_without_weight_is_no_step() {
        let mut chunk = Chunk::new(vec![7.0], 1, &SGD);
        chunk.apply_push(&SGD, &into_round(0.0), 1.0, None, &[f32::NAN]).unwrap();
        chunk
            .apply_push(&SGD, &PushHeader { skip: true, ..into_round(1.0) }, 1.0, None, &[f32::NAN])
            .unwrap();
        for rule in [RoundRule::Optimizer, RoundRule::Average] {
            chunk.close_round(&SGD, rule, 1.0, 1.0, None);
        }
        assert_eq!(chunk.values(), [7.0]);
        assert_eq!(chunk.optimizer_state.steps(), 0);
    }

    #[test]
    fn memory_for_a_round_is_taken_by_the_first_push_into_one() {
        let mut chunk = Chunk::new(vec![0.0], 1, &SGD);
        chunk.apply_push(&SGD, &header(PushMode::Apply, 1.0), 1.0, None, &[1.0]).unwrap();
        assert_eq!((chunk.values(), chunk.round.capacity()), (&[-1.0][..], 0));
        chunk.apply_push(&SGD, &into_round(1.0), 1.0, None, &[1.0]).unwrap();
        assert_eq!((chunk.values(), chunk.round.len()), (&[-1.0][..], 1));
    }

    #[test]
    fn a_barrier_sets_buffers_to_the_weighted_mean_whatever_the_rule_and_the_scale() {
        let momentum = Optimizer::Momentum { momentum: 0.9, nesterov: true, weight_decay: 0.5 };
        for rule in [RoundRule::Optimizer, RoundRule::Average] {
            let mut chunk = Chunk::new(vec![1.0, 100.0, 200.0], 1, &momentum);
            for _ in 0..2 {
                let clipped = PushHeader { scale: 0.25, ..into_round(3.0) };
                chunk.apply_push(&momentum, &clipped, 1.0, None, &[0.0, 4.0, 8.0]).unwrap();
                chunk.apply_push(&momentum, &into_round(1.0), 1.0, None, &[0.0, 8.0, 0.0]).unwrap();
                chunk.close_round(&momentum, rule, 0.1, 0.5, None);
                assert_eq!(chunk.values()[1..], [5.0, 6.0], "{rule:?}");
            }
        }
    }

    #[test]
    fn a_push_of_its_own_moves_buffers_by_its_share_and_never_beyond_what_it_brings() {
        let mut chunk = Chunk::new(vec![1.0, 8.0], 1, &SGD);
        let push = PushHeader { scale: 0.5, ..header(PushMode::Apply, 3.0) };
        chunk.apply_push(&SGD, &push, 0.25, None, &[1.0, 4.0]).unwrap();
        assert_eq!(chunk.values(), [0.5, 7.0]);
        chunk.apply_push(&SGD, &push, 1.0, None, &[0.0, 3.3]).unwrap();
        assert_eq!(chunk.values(), [0.5, 3.3], "one worker alone");
        chunk.apply_push(&SGD, &PushHeader { skip: true, ..push }, 1.0, None, &[9.0, 9.0]).unwrap();
        assert_eq!(chunk.values(), [0.5, 3.3]);
    }

    #[test]
    fn values_that_move_between_slots_and_home_are_those_that_stay_and_leave_what_is_read() {
        let (elements, trained) = (10_000, 8000);
        let bytes = elements * size_of::<f32>();
        let memory = sealed_memory(2 * bytes).unwrap();
        let mapping = Arc::new(Mapping::new(&memory, 0..2 * bytes, Access::Write, Pages::Now).unwrap());
        let slot = |number| SlotPart::new(&mapping, number, number * bytes, elements);
        let start: Vec<f32> = (0..elements).map(|i| (i as f32).cos()).collect();
        let adam =
            Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
        for optimizer in [SGD, adam] {
            let mut stays = Chunk::new(start.clone(), trained, &optimizer);
            let mut moves = Chunk::new(start.clone(), trained, &optimizer);
            for (step, to) in
                [Some(0), Some(0), Some(1), None, None, Some(1), Some(0), None].into_iter().enumerate()
            {
                let pushed: Vec<f32> = (0..elements).map(|i| ((i * (step + 3)) as f32).sin()).collect();
                let before = (moves.slot(), moves.values().to_vec());
                for (chunk, to) in [(&mut stays, None), (&mut moves, to.map(slot))] {
                    if step % 2 == 0 {
                        chunk
                            .apply_push(&optimizer, &header(PushMode::Apply, 1.0), 0.5, to, &pushed)
                            .unwrap();
                    } else {
                        chunk.apply_push(&optimizer, &into_round(2.0), 1.0, None, &pushed).unwrap();
                        chunk.close_round(&optimizer, RoundRule::Optimizer, 0.1, 1.0, to);
                    }
                }
                assert_eq!(moves.slot(), to);
                assert!(stays.values() == moves.values(), "{optimizer:?}, step {step}");
                if let (Some(left), values) = before
                    && to != Some(left)
                {
                    assert!(slot(left).values() == values, "who reads where they were goes on reading them");
                }
            }
        }
    }
}
