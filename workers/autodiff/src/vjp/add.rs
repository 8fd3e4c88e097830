//! y = a + b: the gradient goes to both, summed over what was repeated.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let mut side = |index: usize| n.needs(index).then(|| n.summed_for(dy, index)).transpose();
    Ok(vec![side(0)?, side(1)?])
}
