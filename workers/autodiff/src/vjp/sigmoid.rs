//! y = 1 / (1 + e^-x): dx = dy * y * (1 - y).

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (y, one) = (n.output(), n.emitter.float(n.element(), 1.0));
    let rest = n.emitter.op("Sub", &[&one, y], &[]);
    let slope = n.emitter.op("Mul", &[y, &rest], &[]);
    Ok(vec![Some(n.emitter.op("Mul", &[dy, &slope], &[]))])
}
