//! y = max(x, 0): dx = dy where y > 0, else 0; at 0 the gradient is 0, as everywhere in the field.
//!
//! The mask is taken from y, so that ONNX Runtime may fuse the Relu into the operator before it.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (y, element) = (n.output(), n.element());
    let zero = n.emitter.float(element, 0.0);
    let positive = n.emitter.op("Greater", &[y, &zero], &[]);
    let mask = n.emitter.cast(&positive, element);
    Ok(vec![Some(n.emitter.op("Mul", &[dy, &mask], &[]))])
}
