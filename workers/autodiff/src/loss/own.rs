//! The loss that a model computes itself.
//!
//! The output is what training makes small: a number for each sample, or for each element of it, of which the
//! mean is taken, or one number for the whole batch, which the model has averaged over its samples.

use syncline_onnx::proto::TensorProto;
use syncline_onnx::{Dim, ElementType};

use super::{LossAt, LossValues, rows};
use crate::emitter::Emitter;
use crate::error::AutodiffError;

pub(super) fn emit(e: &mut Emitter, at: &LossAt<'_>) -> Result<LossValues, AutodiffError> {
    // An axis of one that was kept is no axis of samples: that one is open.
    let is_one_number = at.ty.dims.iter().all(|dim| *dim == Dim::Fixed(1));
    if is_one_number && at.ty.element == ElementType::F32 {
        return of_batch(e, at);
    }
    at.check_values()?;
    let (loss, count) = at.mean(e, at.output);
    let slope = e.op("Reciprocal", &[&count], &[]);
    let shape = e.op("Shape", &[at.output], &[]);
    let grad = e.op("Expand", &[&slope, &shape], &[]);
    let weight = at.batch_weight(e);
    Ok(LossValues { loss, weight, metrics: Vec::new(), predicted: None, grad, label: None })
}

/// Samples are counted by the first input: nothing else tells how many there are.
fn of_batch(e: &mut Emitter, at: &LossAt<'_>) -> Result<LossValues, AutodiffError> {
    let Some(input) = at.first_input else {
        return Err(at.misfit("float32 [batch, ...], where the model has no inputs"));
    };
    let rank = at.ty.dims.len();
    let loss = match rank {
        0 => at.output.to_owned(),
        _ => e.op("Squeeze", &[at.output], &[]),
    };
    let grad = e.constant(TensorProto::from_f32("", &vec![1; rank], &[1.0]));
    let weight = rows(e, input);
    Ok(LossValues { loss, weight, metrics: Vec::new(), predicted: None, grad, label: None })
}
