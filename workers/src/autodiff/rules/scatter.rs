//! y = x with updates written, or added, at indices (ScatterND, ScatterElements).
//!
//! The updates receive dy read at the indices. dx is dy, and where updates replaced elements, dy with zeros written
//! there. Indices that repeat have no defined order when they replace, and so no gradient either; added ones may.

use super::positions::wide;
use super::{InputGrads, NodeGrad};
use crate::autodiff::AutodiffError;
use crate::onnx::attr_int;

pub(super) fn nd(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let adds = adds(n)?;
    let indices = wide(n, n.input(1));
    let dx = n.needs(0).then(|| {
        if adds {
            return dy.to_owned();
        }
        let zeros = n.zeros_like(n.input(2));
        n.call("ScatterND", &[dy, &indices, &zeros])
    });
    let updates = n.needs(2).then(|| n.call("GatherND", &[dy, &indices]));
    Ok(vec![dx, None, updates])
}

pub(super) fn elements(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let adds = adds(n)?;
    let (indices, axis) = (n.input(1), attr_int("axis", n.node.int("axis", 0)));
    let dx = n.needs(0).then(|| {
        if adds {
            return dy.to_owned();
        }
        let zeros = n.zeros_like(n.input(2));
        n.emitter.op("ScatterElements", &[dy, indices, &zeros], std::slice::from_ref(&axis))
    });
    let updates =
        n.needs(2).then(|| n.emitter.op("GatherElements", &[dy, indices], std::slice::from_ref(&axis)));
    Ok(vec![dx, None, updates])
}

/// Whether updates are added; an error for what is neither added nor written.
fn adds(n: &NodeGrad<'_>) -> Result<bool, AutodiffError> {
    match n.node.string("reduction", "none") {
        "none" => Ok(false),
        "add" => Ok(true),
        other => Err(n.refuse(format!("reduction `{other}`"))),
    }
}
