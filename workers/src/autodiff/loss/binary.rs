//! Binary cross-entropy of scores x against probabilities z, mean over all elements.
//!
//! -z log s(x) - (1 - z) log(1 - s(x)) with s the logistic function, written as max(x, 0) - x z + log(1 + exp(-abs(x))),
//! which neither overflows nor loses digits to a difference of large numbers. The derivative is s(x) - z.

use super::{LossAt, LossValues, total};
use crate::autodiff::CORRECT;
use crate::autodiff::emitter::Emitter;
use crate::autodiff::error::AutodiffError;
use crate::onnx::ElementType;

pub(super) fn emit(e: &mut Emitter, at: &LossAt<'_>, label: &str) -> Result<LossValues, AutodiffError> {
    at.check_values()?;
    let x = at.output;
    let one = e.float(ElementType::F32, 1.0);
    let positive = e.op("Relu", &[x], &[]);
    let product = e.op("Mul", &[x, label], &[]);
    let linear = e.op("Sub", &[&positive, &product], &[]);
    let size = e.op("Abs", &[x], &[]);
    let size = e.op("Neg", &[&size], &[]);
    let tail = e.op("Exp", &[&size], &[]);
    let tail = e.op("Add", &[&tail, &one], &[]);
    let tail = e.op("Log", &[&tail], &[]);
    let losses = e.op("Add", &[&linear, &tail], &[]);
    let (loss, count) = at.mean(e, &losses);

    let p = e.op("Sigmoid", &[x], &[]);
    let slopes = e.op("Sub", &[&p, label], &[]);
    let grad = e.op("Div", &[&slopes, &count], &[]);
    let correct = correct(e, at, label);
    let weight = at.batch_weight(e);
    Ok(LossValues { loss, weight, metrics: vec![(CORRECT.to_owned(), correct)], grad, label: at.ty.clone() })
}

/// Elements whose score is on the label's side, divided by the elements of a label.
fn correct(e: &mut Emitter, at: &LossAt<'_>, label: &str) -> String {
    let (zero, half) = (e.float(ElementType::F32, 0.0), e.float(ElementType::F32, 0.5));
    let predicted = e.op("Greater", &[at.output, &zero], &[]);
    let wanted = e.op("Greater", &[label, &half], &[]);
    let right = e.op("Equal", &[&predicted, &wanted], &[]);
    let right = e.cast(&right, ElementType::F32);
    let right = total(e, &right, at.ty.dims.len());
    match at.elements_per_label() {
        1 => right,
        many => {
            let many = e.float(ElementType::F32, many as f64);
            e.op("Div", &[&right, &many], &[])
        }
    }
}
