//! y = x with fewer axes.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    Ok(vec![Some(n.reshape_to_input(dy, 0)?)])
}
