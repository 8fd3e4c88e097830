//! y = min(max(x, low), high): dx = dy where low <= x <= high, else 0; dlow and dhigh are the sums of dy where x was
//! replaced by them. A bound that is left out does not bound.
//!
//! Where the bounds want no gradient, dx = dy where y = x: one comparison and a product, a third of the time of choosing
//! twice.

use super::{InputGrads, NodeGrad};
use crate::autodiff::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if !n.needs(1) && !n.needs(2) {
        let kept = n.call("Equal", &[n.output(), n.input(0)]);
        let mask = n.mask(&kept);
        return Ok(vec![Some(n.call("Mul", &[dy, &mask]))]);
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
