//! y = a - b: as for a sum, the second with the other sign.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let da = if n.needs(0) { Some(n.summed_for(dy, 0)?) } else { None };
    let db = if n.needs(1) {
        // Negated after the sum, which may be much smaller.
        let sum = n.summed_for(dy, 1)?;
        Some(n.emitter.op("Neg", &[&sum], &[]))
    } else {
        None
    };
    Ok(vec![da, db])
}
