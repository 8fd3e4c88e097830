//! GRU: z, r = the gates; n = the new state; h = n + z (h' - n).
//!
//! Where `linear_before_reset` is 1, as in PyTorch and Keras, n = tanh(A_n + r Q), Q = R_n h' + its bias;
//! then the way back is dh = dY + (z dh + dQ R) of the step behind, dQ = dh ((h'-n) z(1-z), Q r(1-r) k, r k)
//! with k = (1-z)(1-n^2). Where it is 0, n = tanh(A_n + R_n (r h')), and each step has a second product, with
//! R_n alone.

use syncline_onnx::attr_int;

use super::super::{InputGrads, NodeGrad};
use super::back::{Back, Found, PassGrads, product_of_rows};
use super::lstm::{slope_of_sigmoid, slope_of_tanh};
use super::node::Recurrence;
use super::pass::{Pass, States};
use crate::AutodiffError;

pub(super) const ACTIVATIONS: &[&[&str]] = &[&["Sigmoid", "Tanh"]];

pub(in super::super) fn rule(n: &mut NodeGrad<'_>) -> Result<InputGrads, AutodiffError> {
    let node = Recurrence::of(n, 3, ACTIVATIONS)?;
    let linear_before_reset = n.node.int("linear_before_reset", 0) != 0;
    let backward = if linear_before_reset { linear_first } else { reset_first };
    let passes = node.each(n);
    let passes: Vec<PassGrads> = passes.iter().map(|(pass, _)| backward(n, pass)).collect();
    Ok(node.gradients(n, &passes))
}

/// What both forms share, `[S, B, H]` each.
struct Gates {
    z: String,
    r: String,
    /// z where a sample has a step; elsewhere 1, so that states pass.
    kept: String,
}

impl Gates {
    /// From the sums of both gates, as rows.
    fn of(n: &mut NodeGrad<'_>, pass: &Pass, rows: &str) -> Self {
        let both = n.call("Sigmoid", &[rows]);
        let both = pass.in_steps(n, &both, 2 * pass.hidden);
        let (z, r) = (pass.gate(n, &both, 2, 0), pass.gate(n, &both, 2, 1));
        let kept = pass.or_one(n, z.clone());
        Self { z, r, kept }
    }

    /// By what dh is multiplied on its way to the sum of z, and to that of n.
    fn slopes(&self, n: &mut NodeGrad<'_>, pass: &Pass, before: &str, new: &str) -> (String, String) {
        let change = n.call("Sub", &[before, new]);
        let of_z = slope_of_sigmoid(n, &self.z, &change);
        let one = n.number(1.0);
        let rest = n.call("Sub", &[&one, &self.z]);
        let of_new = slope_of_tanh(n, new, &rest);
        (pass.or_zero(n, of_z), pass.or_zero(n, of_new))
    }
}

fn linear_first(n: &mut NodeGrad<'_>, pass: &Pass) -> PassGrads {
    let states = pass.states(n);
    let hidden = pass.hidden;
    let a = pass.gates_of_input(n, false);
    let q = match &pass.b {
        Some((_, bias)) => n.emitter.op("Gemm", &[&states.rows, &pass.r, bias], &[attr_int("transB", 1)]),
        None => n.emitter.op("Gemm", &[&states.rows, &pass.r], &[attr_int("transB", 1)]),
    };
    let (a_gates, q_gates) = (pass.gates(n, &a, 1, 0, 2), pass.gates(n, &q, 1, 0, 2));
    let sums = n.call("Add", &[&a_gates, &q_gates]);
    let gates = Gates::of(n, pass, &sums);
    let (a_new, q_new) = (pass.gate(n, &a, 1, 2), pass.gate(n, &q, 1, 2));
    let (a_new, q_new) = (pass.in_steps(n, &a_new, hidden), pass.in_steps(n, &q_new, hidden));
    let reset = n.call("Mul", &[&gates.r, &q_new]);
    let new = n.call("Add", &[&a_new, &reset]);
    let new = n.call("Tanh", &[&new]);

    let (of_z, of_new) = gates.slopes(n, pass, &states.before, &new);
    let of_r = slope_of_sigmoid(n, &gates.r, &q_new);
    let of_r = n.call("Mul", &[&of_r, &of_new]);
    let of_q = n.call("Mul", &[&gates.r, &of_new]);
    let slopes = n.emitter.op("Concat", &[&of_z, &of_r, &of_q], &[attr_int("axis", 2)]);

    let mut back = Back::start(n, pass);
    let (steps, dh) = (&mut back.steps, &back.dh);
    let (slopes, kept) = (steps.read(&slopes), steps.read(&gates.kept));
    let three = steps.op("Concat", &[dh, dh, dh], &[attr_int("axis", 1)]);
    let dq = steps.call("Mul", &[&three, &slopes]);
    let product = steps.call("MatMul", &[&dq, &pass.r]);
    let passed = steps.call("Mul", &[dh, &kept]);
    let before = steps.call("Add", &[&product, &passed]);
    steps.collect(&dq);
    steps.collect(dh);
    back.set_before(&before);
    let (firsts, rows) = back.steps.finish(n.emitter, !pass.backwards);
    let [dq, dh] = [rows[0].clone(), rows[1].clone()];
    let dn = n.call("Mul", &[&dh, &of_new]);
    let dzr = pass.gates(n, &dq, 2, 0, 2);
    let da = n.emitter.op("Concat", &[&dzr, &dn], &[attr_int("axis", 2)]);
    Found { da, dq, dr: None, firsts: (firsts[0].clone(), None) }.gradients(n, pass, &states)
}

fn reset_first(n: &mut NodeGrad<'_>, pass: &Pass) -> PassGrads {
    let states = pass.states(n);
    let hidden = pass.hidden;
    let (r_gates, r_new) = (pass.gates(n, &pass.r, 0, 0, 2), pass.gate(n, &pass.r, 0, 2));
    let a = pass.gates_of_input(n, true);
    let a_gates = pass.gates(n, &a, 1, 0, 2);
    let sums = n.emitter.op("Gemm", &[&states.rows, &r_gates, &a_gates], &[attr_int("transB", 1)]);
    let gates = Gates::of(n, pass, &sums);
    let reset = n.call("Mul", &[&gates.r, &states.before]);
    let reset = n.reshaped(&reset, &[-1, hidden]);
    let a_new = pass.gate(n, &a, 1, 2);
    let new = n.emitter.op("Gemm", &[&reset, &r_new, &a_new], &[attr_int("transB", 1)]);
    let new = n.call("Tanh", &[&new]);
    let new = pass.in_steps(n, &new, hidden);

    let (of_z, of_new) = gates.slopes(n, pass, &states.before, &new);
    let of_r = slope_of_sigmoid(n, &gates.r, &states.before);

    let mut back = Back::start(n, pass);
    let (steps, dh) = (&mut back.steps, &back.dh);
    let [of_z, of_new, of_r, r, kept] =
        [&of_z, &of_new, &of_r, &gates.r, &gates.kept].map(|value| steps.read(value));
    let (dz, dn) = (steps.call("Mul", &[dh, &of_z]), steps.call("Mul", &[dh, &of_new]));
    let dreset = steps.call("MatMul", &[&dn, &r_new]);
    let dr = steps.call("Mul", &[&dreset, &of_r]);
    let dzr = steps.op("Concat", &[&dz, &dr], &[attr_int("axis", 1)]);
    let product = steps.call("MatMul", &[&dzr, &r_gates]);
    let (passed, through) = (steps.call("Mul", &[dh, &kept]), steps.call("Mul", &[&dreset, &r]));
    let before = steps.call("Sum", &[&product, &passed, &through]);
    steps.collect(&dzr);
    steps.collect(&dn);
    back.set_before(&before);
    let (firsts, rows) = back.steps.finish(n.emitter, !pass.backwards);
    let [dzr, dn] = [&rows[0], &rows[1]];
    let da = n.emitter.op("Concat", &[dzr, dn], &[attr_int("axis", 2)]);
    let dr = weights_of_states(n, &states, &reset, [dzr, dn], hidden);
    let firsts = (firsts[0].clone(), None);
    Found { dq: da.clone(), da, dr: Some(dr), firsts }.gradients(n, pass, &states)
}

/// dR where the new state sees the states before only after they were reset.
fn weights_of_states(
    n: &mut NodeGrad<'_>,
    states: &States,
    reset: &str,
    [dzr, dn]: [&str; 2],
    hidden: i64,
) -> String {
    let (dzr, dn) = (n.reshaped(dzr, &[-1, 2 * hidden]), n.reshaped(dn, &[-1, hidden]));
    let (gates, new) = (product_of_rows(n, &dzr, &states.rows), product_of_rows(n, &dn, reset));
    n.emitter.op("Concat", &[&gates, &new], &[attr_int("axis", 0)])
}
