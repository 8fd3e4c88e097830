//! What the gradients of a float16 training graph are multiplied by, so that small ones do not vanish.
//!
//! In: whether loss and gradients of each step are finite. Out: the scale of the next step, and whether this
//! one counts. A gradient that is not finite halves the scale and the step is skipped; [`PATIENCE`] good
//! steps in a row double it. Each worker has its own scale and begins anew with the graph's: gradients leave
//! the graph without it, so that workers with different scales agree.
//! Source: Micikevicius et al., Mixed precision training, ICLR 2018, arXiv:1710.03740, section 3.2.

use syncline_autodiff::LOSS_SCALE;
use syncline_onnx::TensorView;
use syncline_onnx::{self as onnx, OnnxError};

/// Good steps after which a larger scale is tried.
const PATIENCE: u32 = 2000;
/// Largest scale; all are powers of two, so that scaling rounds nothing.
const LARGEST: f32 = 16_777_216.0;

/// The scale of one worker.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LossScale {
    scale: f32,
    /// Good steps since the scale last changed.
    good: u32,
}

/// What a step was worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// The scale was too large for it: skip it, the next one has a smaller scale.
    Overflow,
    /// Not the scale's fault.
    Diverged,
}

impl LossScale {
    /// The graph to load, and the scale if the graph has one; its default value would keep it from being fed.
    pub(super) fn take(train_onnx: Vec<u8>) -> Result<(Vec<u8>, Option<Self>), OnnxError> {
        let mut model = onnx::parse(&train_onnx)?;
        let graph = model.graph.get_or_insert_default();
        let is_fed = graph.input.iter().any(|input| input.name == LOSS_SCALE);
        let Some(at) =
            graph.initializer.iter().position(|tensor| tensor.name == LOSS_SCALE).filter(|_| is_fed)
        else {
            return Ok((train_onnx, None));
        };
        let first = graph.initializer.remove(at).to_f32()?.first().copied().unwrap_or(1.0);
        Ok((model.to_bytes(), Some(Self { scale: first.max(1.0), good: 0 })))
    }

    /// The scale of the next step, as the graph wants it.
    pub(super) fn input(&self) -> (&str, TensorView<'_>) {
        (LOSS_SCALE, TensorView::F32 { shape: &[], data: std::slice::from_ref(&self.scale) })
    }

    /// Takes notice of a step.
    pub(super) fn judge(&mut self, loss_is_finite: bool, gradients_are_finite: bool) -> Verdict {
        match (loss_is_finite, gradients_are_finite) {
            (true, true) => {
                self.good += 1;
                if self.good >= PATIENCE {
                    *self = Self { scale: (self.scale * 2.0).min(LARGEST), good: 0 };
                }
                Verdict::Good
            }
            (true, false) if self.scale > 1.0 => {
                *self = Self { scale: (self.scale / 2.0).max(1.0), good: 0 };
                Verdict::Overflow
            }
            // The loss itself is never scaled.
            _ => Verdict::Diverged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{ElementType, TensorType, mlp, proto::TensorProto};

    #[test]
    fn a_step_table() {
        let scale = |scale, good| LossScale { scale, good };
        #[rustfmt::skip]
        let cases = [
            // name, before, loss and gradients finite, verdict, after
            ("good",                scale(8.0, 0),            (true, true),   Verdict::Good,     scale(8.0, 1)),
            ("good long enough",    scale(8.0, PATIENCE - 1), (true, true),   Verdict::Good,     scale(16.0, 0)),
            ("not above the top",   scale(LARGEST, PATIENCE), (true, true),   Verdict::Good,     scale(LARGEST, 0)),
            ("too large",           scale(8.0, 1999),         (true, false),  Verdict::Overflow, scale(4.0, 0)),
            ("never below one",     scale(1.5, 3),            (true, false),  Verdict::Overflow, scale(1.0, 0)),
            ("nothing left to try", scale(1.0, 3),            (true, false),  Verdict::Diverged, scale(1.0, 3)),
            ("the loss",            scale(8.0, 3),            (false, false), Verdict::Diverged, scale(8.0, 3)),
            ("the loss alone",      scale(8.0, 3),            (false, true),  Verdict::Diverged, scale(8.0, 3)),
        ];
        for (name, mut before, (loss, gradients), verdict, after) in cases {
            assert_eq!(before.judge(loss, gradients), verdict, "{name}");
            assert_eq!(before, after, "{name}");
        }
    }

    #[test]
    fn a_scale_is_found_below_any_gradient_and_returns() {
        let mut scale = LossScale { scale: 65536.0, good: 0 };
        let overflows = |scale: &LossScale| scale.scale > 100.0;
        let skipped = (0..50).filter(|_| scale.judge(true, !overflows(&scale)) == Verdict::Overflow).count();
        assert_eq!((skipped, scale.scale), (10, 64.0));
        for _ in 0..PATIENCE {
            scale.judge(true, true);
        }
        assert_eq!(scale.scale, 128.0);
    }

    #[test]
    fn only_a_graph_with_a_default_scale_has_one() {
        let plain = mlp(&[3, 4, 2], 1);
        assert_eq!(LossScale::take(plain.to_bytes()).unwrap(), (plain.to_bytes(), None));
        let mut scaled = plain.clone();
        let graph = scaled.graph.as_mut().unwrap();
        graph.input.push(TensorType::new(ElementType::F32, Vec::new()).to_value_info(LOSS_SCALE));
        graph.initializer.push(TensorProto::from_f32(LOSS_SCALE, &[], &[32.0]));
        let (bytes, scale) = LossScale::take(scaled.to_bytes()).unwrap();
        assert_eq!(scale, Some(LossScale { scale: 32.0, good: 0 }));
        let left = onnx::parse(&bytes).unwrap().graph.unwrap();
        assert!(left.initializer.iter().all(|tensor| tensor.name != LOSS_SCALE));
        assert!(left.input.iter().any(|input| input.name == LOSS_SCALE));
    }
}
