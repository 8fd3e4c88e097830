//! The unit of atomicity: 64 Ki parameters with their optimizer state, updated while the bytes are still in cache.

use syncline_scheduler::{spec::Optimizer, sync::UpdateMode};

use super::PushHeader;
use crate::optim::{self, Slots};

/// Parameters in one chunk; the last chunk of a shard may be shorter.
pub const CHUNK_ELEMENTS: usize = 64 * 1024;
/// Bytes of one full chunk on the wire.
pub const CHUNK_BYTES: usize = CHUNK_ELEMENTS * size_of::<f32>();

/// One slice of a job's parameters.
pub(super) struct Chunk {
    values: Vec<f32>,
    slots: Slots,
    /// Weighted gradients of the open round; empty where every push is a step of its own.
    round: Vec<f32>,
    /// Weight in `round`. Zero means that `round` holds leftovers.
    weight: f64,
}

impl Chunk {
    pub(super) fn new(values: Vec<f32>, rule: &Optimizer, mode: UpdateMode) -> Self {
        let slots = Slots::new(rule, values.len());
        let round = match mode {
            UpdateMode::PerPush => Vec::new(),
            UpdateMode::PerBarrier => vec![0.0; values.len()],
        };
        Self { values, slots, round, weight: 0.0 }
    }

    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Takes in one push's gradient for this chunk.
    pub(super) fn take(&mut self, rule: &Optimizer, mode: UpdateMode, header: &PushHeader, gradient: &[f32]) {
        if header.is_empty() {
            return;
        }
        match mode {
            UpdateMode::PerPush => {
                let PushHeader { learning_rate, scale, .. } = *header;
                optim::step(rule, &mut self.values, &mut self.slots, gradient, learning_rate, scale);
            }
            UpdateMode::PerBarrier => {
                let factor = header.weight * header.scale;
                if self.weight == 0.0 {
                    optim::begin_sum(&mut self.round, gradient, factor);
                } else {
                    optim::add_to_sum(&mut self.round, gradient, factor);
                }
                self.weight += f64::from(header.weight);
            }
        }
    }

    /// Ends the round: one step along the weighted mean. Nothing happens if nothing with weight came.
    pub(super) fn close_round(&mut self, rule: &Optimizer, learning_rate: f32) {
        if self.weight > 0.0 {
            let scale = (1.0 / self.weight) as f32;
            optim::step(rule, &mut self.values, &mut self.slots, &self.round, learning_rate, scale);
            self.weight = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SGD: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };

    fn header(weight: f32) -> PushHeader {
        PushHeader { learning_rate: 1.0, weight, scale: 1.0, skip: false }
    }

    #[test]
    fn a_round_steps_once_along_the_weighted_mean_and_leaves_nothing_behind() {
        let mut chunk = Chunk::new(vec![0.0; 3], &SGD, UpdateMode::PerBarrier);
        for round in 1..=2 {
            chunk.take(&SGD, UpdateMode::PerBarrier, &header(3.0), &[1.0; 3]);
            chunk.take(&SGD, UpdateMode::PerBarrier, &header(1.0), &[5.0; 3]);
            chunk.close_round(&SGD, 0.5);
            assert_eq!(chunk.values(), [-(round as f32); 3]);
            assert_eq!(chunk.slots.steps(), round);
        }
    }

    #[test]
    fn a_round_without_weight_is_no_step() {
        let mut chunk = Chunk::new(vec![7.0], &SGD, UpdateMode::PerBarrier);
        chunk.take(&SGD, UpdateMode::PerBarrier, &header(0.0), &[f32::NAN]);
        chunk.take(&SGD, UpdateMode::PerBarrier, &PushHeader { skip: true, ..header(1.0) }, &[f32::NAN]);
        chunk.close_round(&SGD, 1.0);
        assert_eq!(chunk.values(), [7.0]);
        assert_eq!(chunk.slots.steps(), 0);
    }
}
