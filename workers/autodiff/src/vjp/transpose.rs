//! y = x with its axes in another order: dx = dy with the order undone. Without `perm` the order is turned
//! around.

use super::lengths::transposed;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let rank = n.dims(n.input(0))?.len();
    let mut back: Vec<i64> = (0..rank as i64).rev().collect();
    for (at, &axis) in n.node.ints("perm").unwrap_or_default().iter().enumerate() {
        let axis = n.axis(axis, rank)?;
        back[axis] = at as i64;
    }
    Ok(vec![Some(transposed(n, dy, &back))])
}
