//! y = c ? a : b: da = dy where c holds, db = dy where it does not, else 0, summed over what was repeated.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (condition, zero) = (n.input(0), n.number(0.0));
    let mut side = |index: usize, yes: &str, no: &str| {
        if !n.needs(index) {
            return Ok(None);
        }
        let part = n.call("Where", &[condition, yes, no]);
        n.summed_for(&part, index).map(Some)
    };
    Ok(vec![None, side(1, dy, &zero)?, side(2, &zero, dy)?])
}
