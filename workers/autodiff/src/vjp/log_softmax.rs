//! y = log softmax(x) along one axis: dx = dy - e^y * sum(dy), the sum along the same axis.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum_keeping;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let total = sum_keeping(n.emitter, dy, &[n.node.int("axis", -1)]);
    let p = n.call("Exp", &[n.output()]);
    let weighted = n.call("Mul", &[&p, &total]);
    Ok(vec![Some(n.call("Sub", &[dy, &weighted]))])
}
