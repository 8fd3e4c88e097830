//! y = product of x over axes (ReduceProd): dx = dy * (product of the others).
//!
//! That is dy * y / x where no element is zero. With `p` the product of all elements that are not zero and
//! one zero, only the zero has a gradient, dy * p; with two, none has.

use super::reductions::{again, at_axes};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, zero, one) = (n.input(0), n.number(0.0), n.number(1.0));
    let (k, y) = (at_axes(n, dy)?, at_axes(n, n.output())?);
    let is_zero = n.call("Equal", &[x, &zero]);
    let safe = n.call("Where", &[&is_zero, &one, x]);
    let p = again(n, "ReduceProd", &safe)?;
    let zeros = n.mask(&is_zero);
    let zeros = again(n, "ReduceSum", &zeros)?;
    let lonely = n.call("Equal", &[&zeros, &one]);
    let of_the_zero = n.call("Where", &[&lonely, &p, &zero]);
    let of_others = n.call("Div", &[&y, &safe]);
    let others = n.call("Where", &[&is_zero, &of_the_zero, &of_others]);
    Ok(vec![Some(n.call("Mul", &[&others, &k]))])
}
