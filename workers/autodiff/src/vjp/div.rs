//! y = a / b, element by element: da = dy / b and db = -da * y, summed over what was repeated.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let quotient = n.call("Div", &[dy, n.input(1)]);
    let da = if n.needs(0) { Some(n.summed_for(&quotient, 0)?) } else { None };
    let db = if n.needs(1) {
        let product = n.call("Mul", &[&quotient, n.output()]);
        // Negated after the sum, which may be much smaller.
        let sum = n.summed_for(&product, 1)?;
        Some(n.call("Neg", &[&sum]))
    } else {
        None
    };
    Ok(vec![da, db])
}
