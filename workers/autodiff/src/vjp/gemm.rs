//! Y = alpha A' B' + beta C, where A' is A or its transpose, and B' likewise.
//!
//! dA' = alpha dY B'^T and dB' = alpha A'^T dY, each one Gemm with the right flags: no Transpose is ever
//! made.

use syncline_onnx::{attr_float, attr_int};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (alpha, beta) = (n.node.float("alpha", 1.0), n.node.float("beta", 1.0));
    let (trans_a, trans_b) = (n.node.int("transA", 0) != 0, n.node.int("transB", 0) != 0);
    let (a, b) = (n.input(0), n.input(1));
    let da = n.needs(0).then(|| match trans_a {
        false => product(n, alpha, (dy, false), (b, !trans_b)),
        true => product(n, alpha, (b, trans_b), (dy, true)),
    });
    let db = n.needs(1).then(|| match trans_b {
        false => product(n, alpha, (a, !trans_a), (dy, false)),
        true => product(n, alpha, (dy, true), (a, trans_a)),
    });
    let dc = if n.needs(2) { Some(bias(n, beta, dy)?) } else { None };
    Ok(vec![da, db, dc])
}

/// alpha * left * right, each transposed if its flag says so.
pub(super) fn product(n: &mut NodeGrad<'_>, alpha: f32, left: (&str, bool), right: (&str, bool)) -> String {
    let mut attributes = Vec::new();
    if alpha != 1.0 {
        attributes.push(attr_float("alpha", alpha));
    }
    for (name, transposed) in [("transA", left.1), ("transB", right.1)] {
        if transposed {
            attributes.push(attr_int(name, 1));
        }
    }
    n.emitter.op("Gemm", &[left.0, right.0], &attributes)
}

/// beta * dY, summed to the shape of C.
fn bias(n: &mut NodeGrad<'_>, beta: f32, dy: &str) -> Result<String, AutodiffError> {
    let sum = n.summed_for(dy, 2)?;
    if beta == 1.0 {
        return Ok(sum);
    }
    let factor = n.emitter.float(n.element(), f64::from(beta));
    Ok(n.emitter.op("Mul", &[&sum, &factor], &[]))
}
