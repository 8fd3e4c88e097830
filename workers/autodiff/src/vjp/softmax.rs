//! y = softmax(x) along one axis: dx = y * (dy - sum(dy * y)), the sum along the same axis.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum_keeping;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (y, axis) = (n.output(), n.node.int("axis", -1));
    let weighted = n.emitter.op("Mul", &[dy, y], &[]);
    let total = sum_keeping(n.emitter, &weighted, &[axis]);
    let centered = n.emitter.op("Sub", &[dy, &total], &[]);
    Ok(vec![Some(n.emitter.op("Mul", &[y, &centered], &[]))])
}
