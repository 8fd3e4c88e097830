//! y = min(max(x, low), high): dx = dy where low < x < high, else 0; dlow and dhigh are the sums of dy where
//! x was replaced by them. A bound that is left out does not bound.
//!
//! At a bound nothing flows, as at the kink of Relu, which ONNX Runtime takes into a Clip behind it, and as in
//! hardtanh and relu6 of PyTorch, which become one when they are exported, like its clamp, which lets dy
//! through there. A bound that is trained leaves to x what it does not replace.
//!
//! Where the bounds want no gradient, dx = dy times a mask, which is faster than to choose twice. (To ask
//! where y = x would be faster still, but in 16 bits the two may have been rounded in different places.)

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if !n.needs(1) && !n.needs(2) {
        return Ok(vec![Some(within(n, dy))]);
    }
    let (x, zero) = (n.input(0), n.number(0.0));
    let mut rest = dy.to_owned();
    let mut bounds = [None, None];
    // The upper bound has the last word where the two cross; that matters only to the bounds themselves.
    let crossing = !n.input(1).is_empty() && !n.input(2).is_empty();
    let raised = if crossing { n.call("Max", &[x, n.input(1)]) } else { x.to_owned() };
    for (index, beyond) in [(2, "Greater"), (1, "Less")] {
        let bound = n.input(index);
        if bound.is_empty() {
            continue;
        }
        let replaced = n.call(beyond, &[if index == 2 { &raised } else { x }, bound]);
        if n.needs(index) {
            let part = n.call("Where", &[&replaced, &rest, &zero]);
            bounds[index - 1] = Some(n.summed_for(&part, index)?);
        }
        rest = n.call("Where", &[&replaced, &zero, &rest]);
    }
    let [low, high] = bounds;
    Ok(vec![Some(rest), low, high])
}

/// `dy` where x is between the bounds, else 0.
fn within(n: &mut NodeGrad<'_>, dy: &str) -> String {
    let mut kept: Option<String> = None;
    for (index, side) in [(1, "Greater"), (2, "Less")] {
        let bound = n.input(index);
        if bound.is_empty() {
            continue;
        }
        let side = n.call(side, &[n.input(0), bound]);
        kept = Some(match kept {
            Some(other) => n.call("And", &[&other, &side]),
            None => side,
        });
    }
    let Some(kept) = kept else { return dy.to_owned() };
    let mask = n.mask(&kept);
    n.call("Mul", &[dy, &mask])
}
