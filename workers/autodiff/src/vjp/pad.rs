//! y = x with something around it, or cropped where a pad is negative.
//!
//! Around it a constant: dx = dy with the pads taken off, which is a Pad by the negative, and the constant's
//! gradient is the sum of dy over what was put around. Around it a part of x (modes reflect, edge, wrap):
//! each copy is added to its origin, see `positions`.

use syncline_onnx::attr_int;

use super::positions::scattered_with;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if n.node.string("mode", "constant") != "constant" {
        // These modes take no notice of a constant, which has the type of x and not that of positions.
        let (pads, axes) = (n.input(1), n.input(3));
        let others: &[&str] = if axes.is_empty() { &[pads] } else { &[pads, "", axes] };
        return Ok(vec![Some(scattered_with(n, dy, others, &n.node.attribute))]);
    }
    let back = match n.known_ints(n.input(1)) {
        Some(pads) => n.emitter.ints(&pads.iter().map(|pad| -pad).collect::<Vec<_>>()),
        None => n.call("Neg", &[n.input(1)]),
    };
    let axes = n.input(3);
    let dx =
        if axes.is_empty() { n.call("Pad", &[dy, &back]) } else { n.call("Pad", &[dy, &back, "", axes]) };
    let constant = if n.needs(2) { Some(around(n, dy)?) } else { None };
    Ok(vec![Some(dx), None, constant])
}

/// The sum of `dy` over everything that is not x.
fn around(n: &mut NodeGrad<'_>, dy: &str) -> Result<String, AutodiffError> {
    let (inside, one) = (n.zeros_like(n.input(0)), n.number(1.0));
    let mut inputs = vec![inside.as_str(), n.input(1), &one];
    inputs.extend(Some(n.input(3)).filter(|axes| !axes.is_empty()));
    let mask = n.call("Pad", &inputs);
    let outside = n.call("Mul", &[dy, &mask]);
    let sum = n.emitter.op("ReduceSum", &[&outside], &[attr_int("keepdims", 0)]);
    n.reshape_to_input(&sum, 2)
}
