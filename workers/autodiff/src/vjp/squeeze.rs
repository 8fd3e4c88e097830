//! y = x with axes of size one taken away or put in (Squeeze, Unsqueeze): dx = dy in the shape of x.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    Ok(vec![Some(n.reshape_to_input(dy, 0)?)])
}
