//! y = max(a, b, ...) or min(a, b, ...): dy goes to the inputs that y equals; where several do, they share it equally.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let y = n.output();
    let masks: Vec<String> = n
        .node
        .input
        .iter()
        .map(|x| {
            let taken = n.call("Equal", &[x, y]);
            n.mask(&taken)
        })
        .collect();
    let count = n.call("Sum", &masks.iter().map(String::as_str).collect::<Vec<_>>());
    let share = n.call("Div", &[dy, &count]);
    let side = |(index, mask): (usize, &String)| {
        if !n.needs(index) {
            return Ok(None);
        }
        let part = n.call("Mul", &[&share, mask]);
        n.summed_for(&part, index).map(Some)
    };
    masks.iter().enumerate().map(side).collect()
}
