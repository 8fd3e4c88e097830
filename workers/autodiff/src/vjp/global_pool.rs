//! Pools over the whole image. Mean: dx = dy / positions. Lp: dx = sign(x) |x|^(p-1) dy y^(1-p). Max: dy is
//! shared among the elements that are as large as y, which is a subgradient however many there are.

use super::mean_pool::{power_share, power_slope};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum_keeping;

pub(super) fn average(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let x = n.input(0);
    // Positions = elements of x / elements of y; the batch may be open.
    let (all, kept) = (n.emitter.op("Size", &[x], &[]), n.emitter.op("Size", &[dy], &[]));
    // A selection may be empty, and integers are not divided by zero.
    let one = n.emitter.int(1);
    let kept = n.emitter.op("Max", &[&kept, &one], &[]);
    let positions = n.emitter.op("Div", &[&all, &kept], &[]);
    let positions = n.emitter.cast(&positions, n.element());
    let share = n.emitter.op("Div", &[dy, &positions], &[]);
    let shape = n.emitter.op("Shape", &[x], &[]);
    Ok(vec![Some(n.emitter.op("Expand", &[&share, &shape], &[]))])
}

pub(super) fn power(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, y, p) = (n.input(0), n.output(), n.node.int("p", 2));
    let share = power_share(n, dy, y, p);
    let slope = power_slope(n, x, p);
    Ok(vec![Some(n.emitter.op("Mul", &[&slope, &share], &[]))])
}

pub(super) fn max(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, y) = (n.input(0), n.output());
    let spatial: Vec<i64> = (2..n.dims(x)?.len() as i64).collect();
    let found = n.emitter.op("Equal", &[x, y], &[]);
    let found = n.emitter.cast(&found, n.element());
    let count = sum_keeping(n.emitter, &found, &spatial);
    let share = n.emitter.op("Div", &[dy, &count], &[]);
    Ok(vec![Some(n.emitter.op("Mul", &[&found, &share], &[]))])
}
