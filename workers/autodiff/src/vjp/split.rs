//! y1, y2, ... = the parts of x along an axis: dx = the gradients one after the other, zeros for a part
//! without one.

use syncline_onnx::attr_int;

use super::lengths::{AxisRange, Length, padded};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError> {
    let (node, outputs) = (n.node, n.outputs);
    let rank = n.dims(n.input(0))?.len();
    let axis = n.axis(node.int("axis", 0), rank)?;
    if node.output.iter().any(String::is_empty) {
        return Err(n.refuse("one of its outputs has no name".to_owned()));
    }
    let present: Vec<(usize, &String)> =
        outputs.iter().enumerate().filter_map(|(at, grad)| Some((at, grad.as_ref()?))).collect();
    if let ([(at, dy)], true) = (present.as_slice(), outputs.len() > 1) {
        let mut begin = Length::Known(0);
        for part in &node.output[..*at] {
            let size = Length::of(n, part, axis);
            begin = begin.plus(n, &size);
        }
        let size = Length::of(n, &node.output[*at], axis);
        return Ok(vec![Some(padded(n, dy, n.input(0), rank, &[AxisRange { axis, begin, size }]))]);
    }
    let parts: Vec<String> = node
        .output
        .iter()
        .zip(outputs)
        .map(|(part, grad)| grad.clone().unwrap_or_else(|| n.zeros_like(part)))
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    Ok(vec![Some(n.emitter.op("Concat", &parts, &[attr_int("axis", axis as i64)]))])
}
