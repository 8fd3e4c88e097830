//! y = a * b, element by element: da = dy * b and db = dy * a, summed over what was repeated.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let mut side = |index: usize| {
        if !n.needs(index) {
            return Ok(None);
        }
        let other = n.input(1 - index);
        let product = n.emitter.op("Mul", &[dy, other], &[]);
        n.summed_for(&product, index).map(Some)
    };
    Ok(vec![side(0)?, side(1)?])
}
