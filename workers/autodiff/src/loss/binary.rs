//! Binary cross-entropy of scores x against probabilities z, mean over all elements.
//!
//! -z log s(x) - (1 - z) log(1 - s(x)) with s the logistic function, written as max(x, 0) - x z + log(1 +
//! exp(-abs(x))), which neither overflows nor loses digits to a difference of large numbers. The derivative
//! is s(x) - z.
//!
//! With a weight w of the labels 1, -w z log s(x) - (1 - z) log(1 - s(x)): with f = 1 + (w - 1) z that is
//! (1 - z) x + f (max(-x, 0) + log(1 + exp(-abs(x)))), and the derivative f s(x) - w z. The mean is over the
//! elements as they are, as in PyTorch.

use syncline_onnx::ElementType;
use syncline_onnx::proto::TensorProto;

use super::{LossAt, LossValues, Predicted, total};
use crate::emitter::Emitter;
use crate::error::AutodiffError;
use crate::{CORRECT, PREDICTIONS};

pub(super) fn emit(e: &mut Emitter, at: &LossAt<'_>, label: &str) -> Result<LossValues, AutodiffError> {
    at.check_values()?;
    let x = at.output;
    let one = e.float(ElementType::F32, 1.0);
    let product = e.op("Mul", &[x, label], &[]);
    let size = e.op("Abs", &[x], &[]);
    let size = e.op("Neg", &[&size], &[]);
    let tail = e.op("Exp", &[&size], &[]);
    let tail = e.op("Add", &[&tail, &one], &[]);
    let tail = e.op("Log", &[&tail], &[]);
    let p = e.op("Sigmoid", &[x], &[]);
    let (losses, slopes) = match positive_weight(e, at)? {
        None => {
            let positive = e.op("Relu", &[x], &[]);
            let linear = e.op("Sub", &[&positive, &product], &[]);
            (e.op("Add", &[&linear, &tail], &[]), e.op("Sub", &[&p, label], &[]))
        }
        Some(weight) => {
            let surplus = e.op("Sub", &[&weight, &one], &[]);
            let factor = e.op("Mul", &[&surplus, label], &[]);
            let factor = e.op("Add", &[&factor, &one], &[]);
            let turned = e.op("Neg", &[x], &[]);
            let negative = e.op("Relu", &[&turned], &[]);
            let bent = e.op("Add", &[&negative, &tail], &[]);
            let bent = e.op("Mul", &[&factor, &bent], &[]);
            let linear = e.op("Sub", &[x, &product], &[]);
            let (drawn, wanted) = (e.op("Mul", &[&factor, &p], &[]), e.op("Mul", &[&weight, label], &[]));
            (e.op("Add", &[&linear, &bent], &[]), e.op("Sub", &[&drawn, &wanted], &[]))
        }
    };
    let (loss, count) = at.mean(e, &losses);
    let grad = e.op("Div", &[&slopes, &count], &[]);
    let weight = at.batch_weight(e);
    let (predicted, correct) = correct(e, at, label);
    let mut metrics = vec![(CORRECT.to_owned(), correct)];
    // Elsewhere there is one prediction a sample.
    if at.has_open_axes() {
        metrics.push((PREDICTIONS.to_owned(), weight.clone()));
    }
    let predicted = Some(Predicted { value: predicted, dims: at.ty.dims.clone() });
    Ok(LossValues { loss, weight, metrics, predicted, grad, label: Some(at.ty.clone()) })
}

/// The weights of the labels 1, in a shape that fits the output; `None` if they weigh as much as the others.
fn positive_weight(e: &mut Emitter, at: &LossAt<'_>) -> Result<Option<String>, AutodiffError> {
    let weights = at.options.pos_weight.each();
    let rank = at.ty.dims.len();
    match weights {
        [] => return Ok(None),
        [one] => return Ok(Some(e.float(ElementType::F32, f64::from(*one)))),
        _ => {}
    }
    let axis = usize::try_from(at.options.class_axis(rank).rem_euclid(rank as i64)).unwrap_or(0);
    let classes = at.ty.dims[axis].fixed();
    if axis == 0 || classes != Some(weights.len()) {
        let reason = format!("{} weights for output `{}` ({})", weights.len(), at.output, at.ty);
        return Err(AutodiffError::LossOption { option: "pos_weight", reason });
    }
    let shape: Vec<usize> = (axis..rank).map(|at| if at == axis { weights.len() } else { 1 }).collect();
    Ok(Some(e.constant(TensorProto::from_f32("", &shape, weights))))
}

/// Whether the score of each element is on the side of 1, and how many are on the label's side, divided by
/// the elements of a label.
fn correct(e: &mut Emitter, at: &LossAt<'_>, label: &str) -> (String, String) {
    let (zero, half) = (e.float(ElementType::F32, 0.0), e.float(ElementType::F32, 0.5));
    let predicted = e.op("Greater", &[at.output, &zero], &[]);
    let wanted = e.op("Greater", &[label, &half], &[]);
    let right = e.op("Equal", &[&predicted, &wanted], &[]);
    let right = e.cast(&right, ElementType::F32);
    let right = total(e, &right, at.ty.dims.len());
    let share = match at.elements_per_label() {
        1 => right,
        many => {
            let many = e.float(ElementType::F32, many as f64);
            e.op("Div", &[&right, &many], &[])
        }
    };
    (predicted, share)
}
