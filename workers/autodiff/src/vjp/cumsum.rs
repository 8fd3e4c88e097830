//! y = running sum of x along an axis: dx = running sum of dy from the other end, exclusive if that one was.

use syncline_onnx::attr_int;

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let exclusive = attr_int("exclusive", n.node.int("exclusive", 0));
    let reverse = attr_int("reverse", 1 - n.node.int("reverse", 0));
    Ok(vec![Some(n.emitter.op("CumSum", &[dy, n.input(1)], &[exclusive, reverse]))])
}
