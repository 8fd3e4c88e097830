//! y = x repeated r times along each axis: dx = dy with every axis parted into (r, size), summed over each r.

use syncline_onnx::attr_int;

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let rank = n.dims(n.input(0))?.len();
    let (one, flat) = (n.emitter.ints(&[1]), n.emitter.ints(&[-1]));
    let sizes = n.shape(n.input(0));
    let columns = [n.call("Unsqueeze", &[n.input(1), &one]), n.call("Unsqueeze", &[&sizes, &one])];
    let pairs = n.emitter.op("Concat", &[&columns[0], &columns[1]], &[attr_int("axis", 1)]);
    let shape = n.call("Reshape", &[&pairs, &flat]);
    // A selection may be empty.
    let parted = n.emitter.op("Reshape", &[dy, &shape], &[attr_int("allowzero", 1)]);
    let repeats: Vec<i64> = (0..rank as i64).map(|axis| 2 * axis).collect();
    Ok(vec![Some(sum(n.emitter, &parted, &repeats))])
}
