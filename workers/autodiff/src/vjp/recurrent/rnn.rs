//! RNN: h = f(A), f = tanh or Relu; its slope follows from h itself, so that nothing is computed again.
//!
//! dh = dY + dA R of the step behind, dA = dh f'.

use super::super::{InputGrads, NodeGrad};
use super::back::{Back, Found, PassGrads};
use super::node::Recurrence;
use super::pass::Pass;
use crate::AutodiffError;

pub(super) const ACTIVATIONS: &[&[&str]] = &[&["Tanh"], &["Relu"]];

pub(in super::super) fn rule(n: &mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError> {
    let node = Recurrence::of(n, 1, ACTIVATIONS)?;
    let passes = node.each(n);
    let passes: Vec<PassGrads> =
        passes.iter().map(|(pass, activations)| backward(n, pass, &activations[0])).collect();
    Ok(node.gradients(n, &passes))
}

fn backward(n: &mut NodeGrad<'_>, pass: &Pass, activation: &str) -> PassGrads {
    let states = pass.states(n);
    let slopes = if activation == "Relu" {
        let zero = n.number(0.0);
        let above = n.call("Greater", &[&states.after, &zero]);
        n.mask(&above)
    } else {
        let one = n.number(1.0);
        let square = n.call("Mul", &[&states.after, &states.after]);
        n.call("Sub", &[&one, &square])
    };
    let slopes = pass.or_zero(n, slopes);

    let mut back = Back::start(n, pass);
    let slopes = back.steps.read(&slopes);
    let da = back.steps.call("Mul", &[&back.dh, &slopes]);
    back.steps.collect(&da);
    back.through_product(n, pass, &da);
    let (firsts, rows) = back.steps.finish(n.emitter, !pass.backwards);
    let (da, firsts) = (rows[0].clone(), (firsts[0].clone(), None));
    Found { dq: da.clone(), da, dr: None, firsts }.gradients(n, pass, &states)
}
