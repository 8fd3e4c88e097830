//! y = x repeated to a shape: dx = dy summed over what was repeated.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    Ok(vec![Some(n.summed_for(dy, 0)?)])
}
