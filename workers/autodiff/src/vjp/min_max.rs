//! y = max(a, b, ...) or min(a, b, ...): dy goes to the inputs that y equals; where several do, they share it
//! equally.
//!
//! Where values are rounded to 16 bits, y may equal none of them, as one of them was rounded after it was
//! compared. There each is compared with all others instead: whichever of them are rounded, one is as large
//! as all others.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let masks: Vec<String> = (0..n.node.input.len())
        .map(|index| {
            let taken = match n.rounded {
                true => beyond_others(n, index),
                false => n.call("Equal", &[n.input(index), n.output()]),
            };
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

/// Where an input is as large as each of the others, or as small. An input without others is as large as
/// itself.
fn beyond_others(n: &mut NodeGrad<'_>, index: usize) -> String {
    let (x, compare) = match n.node.op_type.as_str() {
        "Max" => (n.input(index), "GreaterOrEqual"),
        _ => (n.input(index), "LessOrEqual"),
    };
    let others = (0..n.node.input.len()).filter(|other| *other != index);
    let found: Vec<String> = others.map(|other| n.call(compare, &[x, n.input(other)])).collect();
    let all = found.into_iter().reduce(|all, one| n.call("And", &[&all, &one]));
    all.unwrap_or_else(|| n.call(compare, &[x, x]))
}
