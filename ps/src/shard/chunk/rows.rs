//! A chunk of a job with tables: pushes bring pieces of it, such as rows, and what they do not bring stays as
//! it is.
//!
//! A round divides by the weight of all pushes of the round: a row that one of them does not bring counts as
//! zero there. Buffers, which each push brings whole, are divided by the weight of those that came as far as
//! their chunk: they stay between the values that were sent where a worker died amid its push. The step of
//! the optimizer has the number that it has for the job, however long ago a row took part.

use std::collections::{BTreeMap, TryReserveError};

use syncline_scheduler::sync::{PushMode, RoundRule};

use super::{Chunk, DROPPED, PushHeader};
use crate::{
    optim::{self, SliceRule, SliceStep},
    rows::Piece,
};

/// How a round of a job with tables ends.
#[derive(Debug, Clone, Copy)]
pub(in crate::shard) struct RoundEnd {
    pub rule: RoundRule,
    pub learning_rate: f32,
    pub clip: f64,
    /// Weight of all pushes of the round.
    pub weight: f64,
    /// Steps of the job before this one.
    pub steps: u64,
}

impl Chunk {
    /// Takes in what one push has for these pieces of this chunk; `pushed`: one behind the other. `share`:
    /// how far a push of its own moves a buffer. `steps`: steps of the job so far. Fails, having changed
    /// nothing, if there is no memory for the round.
    pub(in crate::shard) fn apply_pieces(
        &mut self,
        rule: &SliceRule,
        header: &PushHeader,
        share: f32,
        steps: u64,
        pieces: &[Piece],
        pushed: &[f32],
    ) -> Result<(), TryReserveError> {
        if header.is_empty() {
            return Ok(());
        }
        let PushHeader { learning_rate, scale, weight, .. } = *header;
        match header.mode {
            PushMode::Apply => {
                self.optimizer_state.catch_up(steps);
                let step = rule.next(&mut self.optimizer_state, learning_rate, scale);
                self.step_pieces(&step, pieces, pushed, share);
            }
            PushMode::Accumulate => {
                self.make_round()?;
                self.add_pieces(pieces, pushed, weight * scale, weight);
                self.weight += f64::from(weight);
            }
        }
        Ok(())
    }

    fn step_pieces(&mut self, step: &SliceStep<'_>, pieces: &[Piece], pushed: &[f32], share: f32) {
        let mut rest = pushed;
        for piece in pieces {
            let Some(brought) = rest.split_off(..piece.len as usize) else { return };
            let (start, trained) = (piece.start as usize, self.trained_of(*piece));
            let values = &mut self.values.at_home()[start..start + brought.len()];
            let (gradient, computed) = brought.split_at(trained);
            step.run(&mut values[..trained], &mut self.optimizer_state, start, gradient);
            optim::lerp(&mut values[trained..], computed, share);
        }
    }

    fn add_pieces(&mut self, pieces: &[Piece], pushed: &[f32], of_gradient: f32, of_buffer: f32) {
        let mut rest = pushed;
        for piece in pieces {
            let Some(brought) = rest.split_off(..piece.len as usize) else { return };
            let (start, trained) = (piece.start as usize, self.trained_of(*piece));
            let first = self.touched.insert(piece.start, piece.len).is_none();
            let add = if first { optim::scale_into } else { optim::axpy };
            let (sum, buffers) = self.round[start..start + brought.len()].split_at_mut(trained);
            let (gradient, computed) = brought.split_at(trained);
            add(sum, gradient, of_gradient);
            add(buffers, computed, of_buffer);
        }
    }

    /// How many elements of a piece the optimizer moves.
    fn trained_of(&self, piece: Piece) -> usize {
        self.trained.saturating_sub(piece.start as usize).min(piece.len as usize)
    }

    /// What of the open round was pushed, as lengths by first element.
    pub(in crate::shard) fn touched(&self) -> &BTreeMap<u32, u32> {
        &self.touched
    }

    /// The same, of a round that was saved. False if the chunk has no such elements, or no round.
    pub(in crate::shard) fn restore_touched(&mut self, touched: BTreeMap<u32, u32>) -> bool {
        let end = |(start, len): (&u32, &u32)| u64::from(*start) + u64::from(*len);
        let fits = touched.iter().all(|piece| end(piece) <= self.round.len() as u64);
        if fits {
            self.touched = touched;
        }
        fits
    }

    /// The optimizer has counted so many steps of the job.
    pub(in crate::shard) fn catch_up(&mut self, steps: u64) {
        self.optimizer_state.catch_up(steps);
    }

    /// Sum of squares of the mean of what was pushed, buffers left out. `weight`: that of all pushes of the
    /// round.
    pub(in crate::shard) fn touched_squares(&self, weight: f64) -> f64 {
        let squares = self.touched.iter().map(|(&start, &len)| {
            let (start, end) = (start as usize, (start + len) as usize);
            optim::squares(&self.round[start.min(self.trained)..end.min(self.trained)])
        });
        if weight > 0.0 { squares.sum::<f64>() / (weight * weight) } else { 0.0 }
    }

    /// Ends the round for what was pushed.
    pub(in crate::shard) fn close_touched(&mut self, rule: &SliceRule, end: &RoundEnd) {
        let weight = end.weight;
        let of_buffers = (1.0 / std::mem::take(&mut self.weight)) as f32;
        let touched = std::mem::take(&mut self.touched);
        if weight == 0.0 || touched.is_empty() || end.clip == DROPPED {
            return;
        }
        let scale = (end.clip / weight) as f32;
        let step = match end.rule {
            RoundRule::Optimizer => {
                self.optimizer_state.catch_up(end.steps);
                Some(rule.next(&mut self.optimizer_state, end.learning_rate, scale))
            }
            RoundRule::Average => None,
        };
        for (start, len) in touched {
            let (start, end) = (start as usize, (start + len) as usize);
            let bound = self.trained.clamp(start, end);
            let (values, round) = (&mut self.values.at_home()[start..bound], &self.round[start..bound]);
            match &step {
                Some(step) => step.run(values, &mut self.optimizer_state, start, round),
                None => optim::axpy(values, round, -scale),
            }
            let (values, round) = (&mut self.values.at_home()[bound..end], &self.round[bound..end]);
            optim::scale_into(values, round, of_buffers);
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::{Optimizer, StepSettings};

    use super::*;

    const ADAM: Optimizer =
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01, decoupled: true };

    fn header(mode: PushMode, weight: f32) -> PushHeader {
        PushHeader { learning_rate: 0.1, weight, scale: 1.0, skip: false, mode, covers: 1 }
    }

    fn row(start: u32) -> Piece {
        Piece { chunk: 0, start, len: 2 }
    }

    fn end(rule: RoundRule, weight: f64, steps: u64) -> RoundEnd {
        RoundEnd { rule, learning_rate: 0.1, clip: 1.0, weight, steps }
    }

    #[test]
    fn rows_that_no_push_brings_stay_as_they_are_with_their_moments() {
        let mut chunk = Chunk::new(vec![1.0; 8], 8, &ADAM);
        let step = header(PushMode::Apply, 1.0);
        chunk.apply_pieces(&SliceRule::usual(&ADAM), &step, 1.0, 0, &[row(2)], &[1.0; 2]).unwrap();
        let (values, state) = (chunk.values().to_vec(), chunk.optimizer_state.clone());
        chunk.apply_pieces(&SliceRule::usual(&ADAM), &step, 1.0, 1, &[row(6)], &[1.0; 2]).unwrap();
        assert_eq!((&chunk.values()[..6], &values[4..]), (&values[..6], &[1.0; 4][..]));
        assert_eq!(chunk.optimizer_state.moments().0[..6], state.moments().0[..6]);
        assert_eq!(chunk.optimizer_state.steps(), 2);
    }

    #[test]
    fn a_row_takes_the_step_of_the_job_however_many_it_took_itself() {
        let dense = {
            let mut chunk = Chunk::new(vec![1.0; 2], 2, &ADAM);
            chunk.catch_up(9);
            chunk
                .apply_push(&SliceRule::usual(&ADAM), &header(PushMode::Apply, 1.0), 1.0, None, &[0.5, -1.0])
                .unwrap();
            chunk.values().to_vec()
        };
        let mut chunk = Chunk::new(vec![1.0; 4], 4, &ADAM);
        chunk
            .apply_pieces(
                &SliceRule::usual(&ADAM),
                &header(PushMode::Apply, 1.0),
                1.0,
                9,
                &[row(2)],
                &[0.5, -1.0],
            )
            .unwrap();
        assert_eq!((&chunk.values()[2..], chunk.optimizer_state.steps()), (&dense[..], 10));
    }

    #[test]
    fn rows_step_with_the_settings_of_their_table() {
        let sgd = Optimizer::sgd();
        let slow = StepSettings { learning_rate_factor: 0.5, ..StepSettings::default() };
        let rule = SliceRule::of_runs(&sgd, [(3, StepSettings::default()), (5, slow)]);
        let mut chunk = Chunk::new(vec![1.0; 8], 8, &sgd);
        chunk
            .apply_pieces(&rule, &header(PushMode::Apply, 1.0), 1.0, 0, &[row(2), row(6)], &[5.0; 4])
            .unwrap();
        assert_eq!(chunk.values(), [1.0, 1.0, 0.5, 0.75, 1.0, 1.0, 0.75, 0.75]);
        chunk.apply_pieces(&rule, &header(PushMode::Accumulate, 1.0), 1.0, 1, &[row(2)], &[5.0; 2]).unwrap();
        chunk.close_touched(&rule, &end(RoundRule::Optimizer, 1.0, 1));
        assert_eq!(chunk.values()[2..4], [0.0, 0.5]);
    }

    #[test]
    fn a_round_counts_a_row_that_a_push_lacks_as_zero_and_leaves_nothing_behind() {
        let sgd = Optimizer::sgd();
        let mut chunk = Chunk::new(vec![0.0; 6], 6, &sgd);
        for round in 1..=2 {
            let push = |weight| header(PushMode::Accumulate, weight);
            chunk
                .apply_pieces(&SliceRule::usual(&sgd), &push(3.0), 1.0, 0, &[row(0), row(4)], &[4.0; 4])
                .unwrap();
            chunk.apply_pieces(&SliceRule::usual(&sgd), &push(1.0), 1.0, 0, &[row(4)], &[8.0; 2]).unwrap();
            let norm = chunk.touched_squares(4.0).sqrt();
            assert_eq!(norm, (2.0 * 9.0 + 2.0 * 25.0f64).sqrt());
            chunk.close_touched(&SliceRule::usual(&sgd), &end(RoundRule::Optimizer, 4.0, round - 1));
            let moved = round as f32 * -0.1;
            for (value, mean) in chunk.values().iter().zip([3.0, 3.0, 0.0, 0.0, 5.0, 5.0]) {
                assert!((value - moved * mean).abs() < 1e-6, "{:?}", chunk.values());
            }
            assert_eq!(chunk.optimizer_state.steps(), round);
        }
        chunk.close_touched(&SliceRule::usual(&sgd), &end(RoundRule::Optimizer, 4.0, 9));
        assert_eq!(chunk.optimizer_state.steps(), 2, "nothing was pushed");
    }

    #[test]
    fn a_buffer_behind_rows_is_averaged_and_never_stepped() {
        let sgd = Optimizer::sgd();
        let mut chunk = Chunk::new(vec![1.0, 1.0, 8.0, 8.0], 2, &sgd);
        let whole = [Piece { chunk: 0, start: 0, len: 4 }];
        let push = PushHeader { scale: 0.5, ..header(PushMode::Apply, 2.0) };
        chunk.apply_pieces(&SliceRule::usual(&sgd), &push, 0.25, 0, &whole, &[1.0, 1.0, 4.0, 4.0]).unwrap();
        assert_eq!(chunk.values(), [0.95, 0.95, 7.0, 7.0]);
        for weight in [3.0, 1.0] {
            let push = header(PushMode::Accumulate, weight);
            chunk
                .apply_pieces(&SliceRule::usual(&sgd), &push, 1.0, 1, &whole, &[0.0, 0.0, weight, weight])
                .unwrap();
        }
        chunk.close_touched(&SliceRule::usual(&sgd), &end(RoundRule::Average, 4.0, 1));
        assert_eq!(chunk.values()[2..], [2.5, 2.5]);
    }

    #[test]
    fn a_buffer_is_the_mean_of_the_pushes_that_came_as_far_as_it() {
        let sgd = Optimizer::sgd();
        for (rule, weight_of_all) in [(RoundRule::Optimizer, 2.0), (RoundRule::Average, 8.0)] {
            let mut chunk = Chunk::new(vec![1.0, 1.0, 8.0, 8.0], 2, &sgd);
            let whole = [Piece { chunk: 0, start: 0, len: 4 }];
            let push = header(PushMode::Accumulate, 1.0);
            // The other one died with its rows in other chunks, and counts there.
            chunk
                .apply_pieces(&SliceRule::usual(&sgd), &push, 1.0, 0, &whole, &[0.0, 0.0, 4.0, 6.0])
                .unwrap();
            chunk.close_touched(&SliceRule::usual(&sgd), &end(rule, weight_of_all, 0));
            assert_eq!(chunk.values()[2..], [4.0, 6.0], "{rule:?}");
        }
    }
}
