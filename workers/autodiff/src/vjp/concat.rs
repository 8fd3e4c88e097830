//! y = the inputs one after the other along an axis: each receives its part of dy.

use super::lengths::{AxisRange, Length, cut};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let rank = n.dims(n.output())?.len();
    let axis = n.axis(n.node.int("axis", 0), rank)?;
    if n.node.input.len() == 1 {
        return Ok(vec![Some(dy.to_owned())]);
    }
    let mut begin = Length::Known(0);
    let mut grads = Vec::with_capacity(n.node.input.len());
    for (index, x) in n.node.input.iter().enumerate() {
        let size = Length::of(n, x, axis);
        let end = begin.plus(n, &size);
        grads.push(n.needs(index).then(|| cut(n, dy, &AxisRange { axis, begin, size })));
        begin = end;
    }
    Ok(grads)
}
