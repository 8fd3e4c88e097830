//! y = softmax(x) along one axis: dx = y * (dy - sum(dy * y)), the sum along the same axis.
//!
//! A row without any x above minus infinity, as that of a query whose keys are all masked, is NaN. Models put
//! zeros in its place by a `Where`, through which no dy comes, but NaN times 0 is NaN: such a row counts as
//! zeros here, as in PyTorch's `_safe_softmax`, of which its exporters write that `Where`. Without one y
//! reaches the loss, and NaN is told of.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum_keeping;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (mut y, axis) = (n.output().to_owned(), n.node.int("axis", -1));
    if n.emitter.is_read_by(&y, "Where") {
        let (nan, zero) = (n.call("IsNaN", &[&y]), n.number(0.0));
        y = n.call("Where", &[&nan, &zero, &y]);
    }
    let weighted = n.emitter.op("Mul", &[dy, &y], &[]);
    let total = sum_keeping(n.emitter, &weighted, &[axis]);
    let centered = n.emitter.op("Sub", &[dy, &total], &[]);
    Ok(vec![Some(n.emitter.op("Mul", &[&y, &centered], &[]))])
}
