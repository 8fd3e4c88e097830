//! y = a + b + ... and y = (a + b + ...) / N: dy, or dy / N, goes to each, summed over what was repeated.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn sum(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    (0..n.node.input.len()).map(|index| n.needs(index).then(|| n.summed_for(dy, index)).transpose()).collect()
}

pub(super) fn mean(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let share = n.number(1.0 / n.node.input.len() as f64);
    let dy = n.call("Mul", &[dy, &share]);
    sum(n, &dy)
}
