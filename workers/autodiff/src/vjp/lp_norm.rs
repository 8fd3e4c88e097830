//! y = x / |x|_p along one axis, p 1 or 2: dx = (dy - slope * sum(dy * y)) / |x|_p, with slope = y for p 2
//! and sign(x) for p 1.
//!
//! Where all x are 0, ONNX Runtime answers 0, and dx is taken for 0: the quotient would be infinite, and NaN
//! behind the next mask, in a batch with a single row of units that do nothing.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum_keeping;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, y, axis, p) = (n.input(0), n.output(), n.node.int("axis", -1), n.node.int("p", 2));
    let (norm, slope) = match p {
        1 => {
            let size = n.emitter.op("Abs", &[x], &[]);
            (sum_keeping(n.emitter, &size, &[axis]), n.emitter.op("Sign", &[x], &[]))
        }
        _ => {
            let square = n.emitter.op("Mul", &[x, x], &[]);
            let total = sum_keeping(n.emitter, &square, &[axis]);
            (n.emitter.op("Sqrt", &[&total], &[]), y.to_owned())
        }
    };
    let product = n.emitter.op("Mul", &[dy, y], &[]);
    let total = sum_keeping(n.emitter, &product, &[axis]);
    let along = n.emitter.op("Mul", &[&slope, &total], &[]);
    let rest = n.emitter.op("Sub", &[dy, &along], &[]);
    let zero = n.number(0.0);
    let none = n.emitter.op("Equal", &[&norm, &zero], &[]);
    let quotient = n.emitter.op("Div", &[&rest, &norm], &[]);
    Ok(vec![Some(n.emitter.op("Where", &[&none, &zero, &quotient], &[]))])
}
