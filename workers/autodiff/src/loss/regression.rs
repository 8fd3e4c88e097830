//! Losses of the difference d = y - label, mean over all elements.
//!
//! | loss | of one element | derivative |
//! |---|---|---|
//! | `mse` | d^2 | 2 d |
//! | `l1` | abs(d) | sign(d) |
//! | `huber` | c (abs(d) - c / 2) with c = min(abs(d), delta) | d, cut off at -delta and delta |
//!
//! The form of Huber is d^2 / 2 up to delta and delta (abs(d) - delta / 2) from there on, without a case
//! distinction.

use syncline_onnx::ElementType;

use super::{Loss, LossAt, LossValues};
use crate::emitter::Emitter;
use crate::error::AutodiffError;

pub(super) fn emit(e: &mut Emitter, at: &LossAt<'_>, label: &str) -> Result<LossValues, AutodiffError> {
    at.check_values()?;
    let difference = e.op("Sub", &[at.output, label], &[]);
    let (losses, slopes) = match at.loss {
        Loss::MeanAbsoluteError => absolute(e, &difference),
        Loss::Huber => huber(e, &difference, at.options.delta.unwrap_or(1.0)),
        _ => squared(e, &difference),
    };
    let (loss, count) = at.mean(e, &losses);
    let grad = e.op("Div", &[&slopes, &count], &[]);
    let weight = at.batch_weight(e);
    Ok(LossValues { loss, weight, metrics: Vec::new(), predicted: None, grad, label: Some(at.ty.clone()) })
}

fn squared(e: &mut Emitter, difference: &str) -> (String, String) {
    let two = e.float(ElementType::F32, 2.0);
    (e.op("Mul", &[difference, difference], &[]), e.op("Mul", &[difference, &two], &[]))
}

fn absolute(e: &mut Emitter, difference: &str) -> (String, String) {
    (e.op("Abs", &[difference], &[]), e.op("Sign", &[difference], &[]))
}

fn huber(e: &mut Emitter, difference: &str, delta: f32) -> (String, String) {
    let upper = e.float(ElementType::F32, f64::from(delta));
    let lower = e.float(ElementType::F32, f64::from(-delta));
    let half = e.float(ElementType::F32, 0.5);
    let size = e.op("Abs", &[difference], &[]);
    let cut = e.op("Min", &[&size, &upper], &[]);
    let corner = e.op("Mul", &[&cut, &half], &[]);
    let rest = e.op("Sub", &[&size, &corner], &[]);
    (e.op("Mul", &[&cut, &rest], &[]), e.op("Clip", &[difference, &lower, &upper], &[]))
}
