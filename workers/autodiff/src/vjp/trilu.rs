//! y = upper or lower triangle of x, else 0: dx = the same triangle of dy.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let inputs: Vec<&str> = [dy].into_iter().chain(n.node.input.get(1).map(String::as_str)).collect();
    Ok(vec![Some(n.emitter.op("Trilu", &inputs, &n.node.attribute))])
}
