//! y = x.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(_: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    Ok(vec![Some(dy.to_owned())])
}
