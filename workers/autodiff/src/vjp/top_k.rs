//! y = the k largest elements along an axis, in order, with their indices: dx = dy where each came from, else
//! 0.

use super::positions::scatter_add_along;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let indices = n.node.output.get(1).map_or("", String::as_str);
    if indices.is_empty() {
        return Err(n.refuse("its second output, the indices, has no name".to_owned()));
    }
    let zeros = n.zeros_like(n.input(0));
    Ok(vec![Some(scatter_add_along(n, &zeros, indices, dy, n.node.int("axis", -1)))])
}
