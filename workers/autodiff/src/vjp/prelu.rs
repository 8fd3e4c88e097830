//! y = x where x > 0, else slope * x: dx = dy where x > 0, else slope * dy; dslope = sum(dy * min(x, 0)).

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, slope, zero) = (n.input(0), n.input(1), n.number(0.0));
    let dx = n.needs(0).then(|| {
        let positive = n.call("Greater", &[x, &zero]);
        let scaled = n.call("Mul", &[dy, slope]);
        n.call("Where", &[&positive, dy, &scaled])
    });
    let dslope = if n.needs(1) {
        let negative = n.call("Min", &[x, &zero]);
        let product = n.call("Mul", &[dy, &negative]);
        Some(n.summed_for(&product, 1)?)
    } else {
        None
    };
    Ok(vec![dx, dslope])
}
