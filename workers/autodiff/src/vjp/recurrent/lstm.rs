//! LSTM: i, o, f, g = the gates; c = f c' + i g; h = o tanh(c).
//!
//! Cell states are no output, but follow from the gates by one more loop. Then, from the last step to the
//! first, dh = dY + dA R of the step behind, dc = (f dc of the step behind) + dh o (1 - tanh^2 c), and
//! dA = (dc g i(1-i), dh tanh(c) o(1-o), dc c' f(1-f), dc i (1-g^2)), in the order of ONNX: i, o, f, g.

use syncline_onnx::attr_int;

use super::super::{InputGrads, NodeGrad};
use super::back::{Back, Found, PassGrads, last_grad};
use super::node::Recurrence;
use super::pass::Pass;
use super::steps::Steps;
use crate::AutodiffError;

pub(super) const ACTIVATIONS: &[&[&str]] = &[&["Sigmoid", "Tanh", "Tanh"]];

pub(in super::super) fn rule(n: &mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError> {
    let node = Recurrence::of(n, 4, ACTIVATIONS)?;
    let passes: Vec<PassGrads> = node.each(n).iter().map(|(pass, _)| backward(n, pass)).collect();
    Ok(node.gradients(n, &passes))
}

fn backward(n: &mut NodeGrad<'_>, pass: &Pass) -> PassGrads {
    let states = pass.states(n);
    let rows = pass.gates_of_input(n, true);
    let rows = n.emitter.op("Gemm", &[&states.rows, &pass.r, &rows], &[attr_int("transB", 1)]);
    let sums = pass.in_steps(n, &rows, 4 * pass.hidden);
    let open = pass.gates(n, &sums, 2, 0, 3);
    let open = n.call("Sigmoid", &[&open]);
    let [i, o, f] = [0, 1, 2].map(|index| pass.gate(n, &open, 2, index));
    let g = pass.gate(n, &sums, 2, 3);
    let g = n.call("Tanh", &[&g]);

    // Behind the end of a sample its cell stays as it is.
    let kept = pass.or_one(n, f.clone());
    let added = n.call("Mul", &[&i, &g]);
    let added = pass.or_zero(n, added);
    let (c_before, c) = cells(n, pass, &kept, &added);

    let tanh = n.call("Tanh", &[&c]);
    let [di, do_, df, dg] = [
        slope_of_sigmoid(n, &i, &g),
        slope_of_sigmoid(n, &o, &tanh),
        slope_of_sigmoid(n, &f, &c_before),
        slope_of_tanh(n, &g, &i),
    ];
    let slopes = n.emitter.op("Concat", &[&di, &do_, &df, &dg], &[attr_int("axis", 2)]);
    let slopes = pass.or_zero(n, slopes);
    let through = slope_of_tanh(n, &tanh, &o);
    let through = pass.or_zero(n, through);

    let mut back = Back::start(n, pass);
    let dh = back.dh.clone();
    let steps = &mut back.steps;
    let behind = steps.state(&last_grad(n, pass, 2));
    let (slopes, through, kept) = (steps.read(&slopes), steps.read(&through), steps.read(&kept));
    let dc = steps.call("Mul", &[&dh, &through]);
    let dc = steps.call("Add", &[&dc, &behind]);
    let four = steps.op("Concat", &[&dc, &dh, &dc, &dc], &[attr_int("axis", 1)]);
    let da = steps.call("Mul", &[&four, &slopes]);
    let before = steps.call("Mul", &[&dc, &kept]);
    steps.set_next(&behind, &before);
    steps.collect(&da);
    back.through_product(n, pass, &da);
    let (firsts, rows) = back.steps.finish(n.emitter, !pass.backwards);
    let (da, firsts) = (rows[0].clone(), (firsts[0].clone(), Some(firsts[1].clone())));
    Found { dq: da.clone(), da, dr: None, firsts }.gradients(n, pass, &states)
}

/// The cell states before and after each step.
fn cells(n: &mut NodeGrad<'_>, pass: &Pass, kept: &str, added: &str) -> (String, String) {
    let mut steps = Steps::default();
    let before = steps.state(&pass.c0);
    let (kept, added) = (steps.read(kept), steps.read(added));
    let after = steps.call("Mul", &[&before, &kept]);
    let after = steps.call("Add", &[&after, &added]);
    steps.set_next(&before, &after);
    steps.collect(&before);
    steps.collect(&after);
    let (_, rows) = steps.finish(n.emitter, pass.backwards);
    (rows[0].clone(), rows[1].clone())
}

/// factor * y (1 - y), for y = sigmoid.
pub(super) fn slope_of_sigmoid(n: &mut NodeGrad<'_>, y: &str, factor: &str) -> String {
    let one = n.number(1.0);
    let rest = n.call("Sub", &[&one, y]);
    let slope = n.call("Mul", &[y, &rest]);
    n.call("Mul", &[&slope, factor])
}

/// factor * (1 - y^2), for y = tanh.
pub(super) fn slope_of_tanh(n: &mut NodeGrad<'_>, y: &str, factor: &str) -> String {
    let one = n.number(1.0);
    let square = n.call("Mul", &[y, y]);
    let slope = n.call("Sub", &[&one, &square]);
    n.call("Mul", &[&slope, factor])
}
