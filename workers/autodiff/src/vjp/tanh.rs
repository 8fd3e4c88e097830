//! y = tanh x: dx = dy * (1 - y^2).

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (y, one) = (n.output(), n.emitter.float(n.element(), 1.0));
    let square = n.emitter.op("Mul", &[y, y], &[]);
    let slope = n.emitter.op("Sub", &[&one, &square], &[]);
    Ok(vec![Some(n.emitter.op("Mul", &[dy, &slope], &[]))])
}
