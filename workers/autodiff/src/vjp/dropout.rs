//! y = x * mask / (1 - ratio) while training, else y = x: the gradient takes the same way.
//!
//! The mask is an output that the operator can return.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

/// Ratio of a node that states none.
const DEFAULT_RATIO: f64 = 0.5;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let active = n.input(2);
    if active.is_empty() {
        return Ok(vec![Some(dy.to_owned())]);
    }
    let element = n.element();
    let one = n.emitter.float(element, 1.0);
    let ratio = match n.input(1) {
        "" => n.emitter.float(element, DEFAULT_RATIO),
        // The ratio may have another float type than the data.
        ratio => n.emitter.cast(ratio, element),
    };
    let kept = n.emitter.op("Sub", &[&one, &ratio], &[]);
    let scale = n.emitter.op("Reciprocal", &[&kept], &[]);
    // When not training, nothing is masked and nothing scaled.
    let scale = n.emitter.op("Where", &[active, &scale, &one], &[]);
    let mask = n.emitter.optional_output(n.output(), 1);
    let mask = n.emitter.cast(&mask, element);
    let scaled = n.emitter.op("Mul", &[dy, &scale], &[]);
    Ok(vec![Some(n.emitter.op("Mul", &[&scaled, &mask], &[]))])
}
