//! y = x in another float type: dx = dy in the type of x. A cast to or from anything else carries no
//! gradient, and the backward pass never comes here.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, to) = (n.input(0), n.element());
    let from = n.types.get(x).map_or(to, |ty| ty.element);
    Ok(vec![Some(if from == to { dy.to_owned() } else { n.emitter.cast(dy, from) })])
}
