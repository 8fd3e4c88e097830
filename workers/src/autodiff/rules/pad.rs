//! y = x with something around it, or cropped where a pad is negative.
//!
//! Around it a constant: dx = dy with the pads taken off, which is a Pad by the negative. Around it a part of x
//! (modes reflect, edge, wrap): each copy is added to its origin, see `positions`.

use super::positions::scattered;
use super::{InputGrads, NodeGrad};
use crate::autodiff::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if n.needs(2) {
        return Err(n.refuse("the constant around the input is trained".to_owned()));
    }
    if n.node.string("mode", "constant") != "constant" {
        return Ok(vec![Some(scattered(n, dy, &n.node.attribute))]);
    }
    let back = match n.known_ints(n.input(1)) {
        Some(pads) => n.emitter.ints(&pads.iter().map(|pad| -pad).collect::<Vec<_>>()),
        None => n.call("Neg", &[n.input(1)]),
    };
    let axes = n.input(3);
    let dx =
        if axes.is_empty() { n.call("Pad", &[dy, &back]) } else { n.call("Pad", &[dy, &back, "", axes]) };
    Ok(vec![Some(dx)])
}
