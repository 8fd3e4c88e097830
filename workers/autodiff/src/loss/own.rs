//! The loss that a model computes itself.
//!
//! The output is what training makes small: a number for each sample, or for each element of it, of which the mean is taken, or one
//! number for the whole batch, which the model has averaged over its samples.

use syncline_onnx::ElementType;

use super::{LossAt, LossValues, rows};
use crate::emitter::Emitter;
use crate::error::AutodiffError;

pub(super) fn emit(e: &mut Emitter, at: &LossAt<'_>) -> Result<LossValues, AutodiffError> {
    if at.ty.dims.is_empty() && at.ty.element == ElementType::F32 {
        return of_batch(e, at);
    }
    at.check_values()?;
    let (loss, count) = at.mean(e, at.output);
    let slope = e.op("Reciprocal", &[&count], &[]);
    let shape = e.op("Shape", &[at.output], &[]);
    let grad = e.op("Expand", &[&slope, &shape], &[]);
    let weight = at.batch_weight(e);
    Ok(LossValues { loss, weight, metrics: Vec::new(), grad, label: None })
}

/// Samples are counted by the first input: nothing else tells how many there are.
fn of_batch(e: &mut Emitter, at: &LossAt<'_>) -> Result<LossValues, AutodiffError> {
    let Some(input) = at.first_input else {
        return Err(at.misfit("float32 [batch, ...], where the model has no inputs"));
    };
    let loss = e.op("Identity", &[at.output], &[]);
    let grad = e.float(ElementType::F32, 1.0);
    let weight = rows(e, input);
    Ok(LossValues { loss, weight, metrics: Vec::new(), grad, label: None })
}
