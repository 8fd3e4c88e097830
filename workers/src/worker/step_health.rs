//! Whether a step gave finite numbers, and what therefore travels in front of its push.

use syncline_ps::{optim::gradient_norm, shard::PushHeader};
use syncline_scheduler::{
    core::{GradientUse, Iterated},
    sync::PushMode,
};

use super::{iteration::Iteration, replicas::Step};

/// Loss, weight and norms of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepHealth {
    pub loss: f32,
    weight: f32,
    gradient_norm: f64,
    buffer_norm: f64,
}

impl StepHealth {
    /// `values`: the gradients of the first `trained` tensors, then the new values of the buffers.
    pub(super) fn of(step: &Step<'_>, values: &[&[f32]], trained: usize) -> Self {
        let (gradients, buffers) = values.split_at(trained);
        Self {
            loss: step.loss,
            weight: step.weight,
            gradient_norm: gradient_norm(gradients),
            buffer_norm: gradient_norm(buffers),
        }
    }

    /// The same from sums of squares.
    pub(super) fn of_squares(loss: f32, weight: f32, of_gradients: f64, of_buffers: f64) -> Self {
        Self { loss, weight, gradient_norm: of_gradients.sqrt(), buffer_norm: of_buffers.sqrt() }
    }

    pub(super) fn loss_is_finite(&self) -> bool {
        self.loss.is_finite()
    }

    pub(super) fn norm_is_finite(&self) -> bool {
        self.gradient_norm.is_finite()
    }

    /// What is not finite, and its value.
    pub(super) fn fault(&self) -> Option<(&'static str, f64)> {
        let (loss, weight) = (f64::from(self.loss), f64::from(self.weight));
        if [loss, weight, self.gradient_norm, self.buffer_norm].iter().all(|number| number.is_finite()) {
            return None;
        }
        Some(match (self.loss_is_finite(), self.norm_is_finite()) {
            (false, _) => ("the loss", loss),
            (true, false) => ("the gradient", self.gradient_norm),
            (true, true) => ("a running statistic", self.buffer_norm),
        })
    }

    /// What is reported of it. A batch of which no label counts has no loss.
    pub(super) fn report(&self, it: &Iteration) -> Iterated {
        let loss = if self.weight == 0.0 { f32::NAN } else { self.loss };
        let (range, loss_weight, skipped) = (it.range, self.weight, self.fault().is_some());
        Iterated { range, loss, loss_weight, skipped, ..Iterated::default() }
    }

    /// The header of this step's push, which is `compressed` or goes as it is. A step with a fault is
    /// skipped.
    pub(super) fn header(&self, it: &Iteration, clip_norm: Option<f32>, compressed: bool) -> PushHeader {
        let clip = match clip_norm {
            Some(clip) if self.gradient_norm > f64::from(clip) => {
                (f64::from(clip) / self.gradient_norm) as f32
            }
            _ => 1.0,
        };
        let (mode, scale) = match it.gradient {
            GradientUse::ApplyOnArrival { scale } => (PushMode::Apply, clip * scale),
            // Here, too: of a spike that only the shards clip, the rest would be kept back, and said again in
            // every later round (Lin et al., Deep Gradient Compression, ICLR 2018,
            // arXiv:1712.01887).
            GradientUse::JoinRound if compressed => (PushMode::Accumulate, clip),
            // Clipped on the shards, as the mean of all: that is what one machine with all samples would do.
            GradientUse::JoinRound => (PushMode::Accumulate, 1.0),
            GradientUse::LocalStep { .. } => (PushMode::Accumulate, clip),
        };
        let skip = self.fault().is_some();
        // What is skipped may have any weight, and shards take none that is not finite.
        let weight = if skip { 0.0 } else { self.weight };
        PushHeader { learning_rate: it.learning_rate, weight, scale, skip, mode, covers: 1 }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{graph::TaskId, ids::Incarnation, samples::SampleRange};

    use super::*;

    #[test]
    fn what_is_kept_back_is_clipped_before_and_what_joins_a_round_whole_is_clipped_there() {
        let (round, step) = (GradientUse::JoinRound, GradientUse::ApplyOnArrival { scale: 0.5 });
        let local = GradientUse::LocalStep { first: 1, last: 2 };
        #[rustfmt::skip]
        let cases = [
            // use,  norm,   clip_norm, compressed, scale
            (round,  1000.0, Some(1.0), true,       0.001),
            (round,  1000.0, Some(1.0), false,      1.0),
            (round,  0.5,    Some(1.0), true,       1.0),
            (round,  1000.0, None,      true,       1.0),
            (step,   1000.0, Some(1.0), false,      0.0005),
            (local,  1000.0, Some(1.0), false,      0.001),
        ];
        for (gradient, norm, clip_norm, compressed, scale) in cases {
            let range = SampleRange { epoch: 0, start: 0, len: 4 };
            let task = TaskId::Iteration { worker: Incarnation(1), seq: 1 };
            let it = Iteration { task, seq: 1, range, learning_rate: 0.1, gradient };
            let health = StepHealth::of_squares(1.0, 4.0, norm * norm, 0.0);
            let header = health.header(&it, clip_norm, compressed);
            assert_eq!(header.scale, scale, "{gradient:?} {norm} {clip_norm:?} {compressed}");
        }
    }
}
