//! The loss of a float16 training graph, scaled so that small gradients do not vanish.
//!
//! float16 has no numbers below 6e-8. So the gradient that the backward pass begins with is multiplied by the
//! input `loss_scale`, and each parameter's gradient divided by it again, in float32. The input has a
//! default, so that the graph runs as it is; who trains lowers it when a gradient is not finite. The output
//! `loss` is not scaled. Source: Micikevicius et al., Mixed precision training, ICLR 2018, arXiv:1710.03740.

use syncline_onnx::proto::TensorProto;

use crate::LOSS_SCALE;
use crate::emitter::Emitter;

/// What the loss is multiplied by at first.
pub const FIRST_LOSS_SCALE: f32 = 65536.0;

/// Multiplies the gradient of the loss by the input `loss_scale`, whose default is written as well. Returns
/// the gradient that the backward pass begins with.
pub(crate) fn scale_loss(emitter: &mut Emitter, grad: &str) -> String {
    emitter.default_value(TensorProto::from_f32(LOSS_SCALE, &[], &[FIRST_LOSS_SCALE]));
    emitter.op("Mul", &[grad, LOSS_SCALE], &[])
}

/// The gradient of a parameter without that factor.
pub(crate) fn unscale(emitter: &mut Emitter, grad: &str) -> String {
    let inverse = emitter.op("Reciprocal", &[LOSS_SCALE], &[]);
    emitter.op("Mul", &[grad, &inverse], &[])
}
