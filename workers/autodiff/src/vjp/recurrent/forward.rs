//! The recurrences written out, for the gradient check in float64: ONNX Runtime has none of them in float64.

use super::super::NodeGrad;
use super::node::{Recurrence, stacked};
use super::pass::Pass;
use super::steps::Steps;
use super::{gru, lstm, rnn};
use crate::AutodiffError;

/// The values of the node's outputs; `None` for another operator.
pub(in super::super) fn written_out(n: &mut NodeGrad<'_>) -> Result<Option<Vec<String>>, AutodiffError> {
    let (gates, activations) = match n.node.op_type.as_str() {
        "LSTM" => (4, lstm::ACTIVATIONS),
        "GRU" => (3, gru::ACTIVATIONS),
        "RNN" => (1, rnn::ACTIVATIONS),
        _ => return Ok(None),
    };
    let node = Recurrence::of(n, gates, activations)?;
    let mut results = [const { Vec::new() }; 3];
    for (pass, activations) in node.each(n) {
        for (values, value) in results.iter_mut().zip(walked(n, &pass, activations)) {
            values.push(value);
        }
    }
    let [all, last, cells] = &results;
    let outputs = [(all, 1), (last, 0), (cells, 0)];
    Ok(Some(outputs.map(|(values, axis)| stacked(n, values.iter(), axis)).to_vec()))
}

/// All states of a pass, `[S, B, H]`, and the last ones.
fn walked(n: &mut NodeGrad<'_>, pass: &Pass, activations: &[String]) -> Vec<String> {
    let rows = pass.gates_of_input(n, false);
    let rows = pass.in_steps(n, &rows, pass.gates * pass.hidden);
    let r = n.call("Transpose", &[&pass.r]);
    let mut steps = Steps::default();
    let h = steps.state(&pass.h0);
    let a = steps.read(&rows);
    let mut cell = None;
    let mut next = match pass.gates {
        4 => {
            let c = steps.state(&pass.c0);
            let sums = from_states(&mut steps, pass, &h, &r, &a);
            let open = steps.call("Sigmoid", &[&sums]);
            let gate = |n: &mut NodeGrad<'_>, steps: &mut Steps, values: &str, index: i64| {
                steps.columns(n.emitter, values, index * pass.hidden, (index + 1) * pass.hidden)
            };
            let [i, o, f] = [0, 1, 2].map(|index| gate(n, &mut steps, &open, index));
            let g = gate(n, &mut steps, &sums, 3);
            let g = steps.call("Tanh", &[&g]);
            let (kept, added) = (steps.call("Mul", &[&c, &f]), steps.call("Mul", &[&i, &g]));
            let after = steps.call("Add", &[&kept, &added]);
            let tanh = steps.call("Tanh", &[&after]);
            cell = Some((c, after));
            steps.call("Mul", &[&o, &tanh])
        }
        3 => gru_step(n, pass, &mut steps, [&h, &a]),
        _ => {
            let sums = from_states(&mut steps, pass, &h, &r, &a);
            steps.call(&activations[0], &[&sums])
        }
    };
    let mut seen = None;
    if let Some(within) = &pass.within {
        let within = n.mask(within);
        let within = steps.read(&within);
        next = held(&mut steps, &within, &h, &next);
        cell = cell.map(|(c, after)| (c.clone(), held(&mut steps, &within, &c, &after)));
        seen = Some(steps.call("Mul", &[&within, &next]));
    }
    steps.set_next(&h, &next);
    cell.iter().for_each(|(c, after)| steps.set_next(c, after));
    steps.collect(seen.as_ref().unwrap_or(&next));
    let (last, rows) = steps.finish(n.emitter, pass.backwards);
    [rows, last].concat()
}

/// What a step gets from X, with what it gets from the state before it.
fn from_states(steps: &mut Steps, pass: &Pass, h: &str, r: &str, a: &str) -> String {
    let product = steps.call("MatMul", &[h, r]);
    let sums = steps.call("Add", &[a, &product]);
    match &pass.b {
        Some((_, bias)) => steps.call("Add", &[&sums, bias]),
        None => sums,
    }
}

fn gru_step(n: &mut NodeGrad<'_>, pass: &Pass, steps: &mut Steps, [h, a]: [&str; 2]) -> String {
    let hidden = pass.hidden;
    let part = |n: &mut NodeGrad<'_>, first: i64, count: i64| {
        let weights = pass.gates(n, &pass.r, 0, first, count);
        let bias = pass.b.as_ref().map(|(_, bias)| pass.gates(n, bias, 0, first, count));
        (n.call("Transpose", &[&weights]), bias)
    };
    let product = |steps: &mut Steps, h: &str, (weights, bias): &(String, Option<String>)| {
        let product = steps.call("MatMul", &[h, weights]);
        bias.as_ref().map_or(product.clone(), |bias| steps.call("Add", &[&product, bias]))
    };
    let (of_gates, of_new) = (part(n, 0, 2), part(n, 2, 1));
    let from_h = product(steps, h, &of_gates);
    let from_x = steps.columns(n.emitter, a, 0, 2 * hidden);
    let sums = steps.call("Add", &[&from_x, &from_h]);
    let both = steps.call("Sigmoid", &[&sums]);
    let (z, r) =
        (steps.columns(n.emitter, &both, 0, hidden), steps.columns(n.emitter, &both, hidden, 2 * hidden));
    let from_h = if n.node.int("linear_before_reset", 0) != 0 {
        let linear = product(steps, h, &of_new);
        steps.call("Mul", &[&r, &linear])
    } else {
        let reset = steps.call("Mul", &[&r, h]);
        product(steps, &reset, &of_new)
    };
    let from_x = steps.columns(n.emitter, a, 2 * hidden, 3 * hidden);
    let new = steps.call("Add", &[&from_x, &from_h]);
    let new = steps.call("Tanh", &[&new]);
    held(steps, &z, &new, h)
}

/// `no` + share * (`yes` - `no`).
fn held(steps: &mut Steps, share: &str, no: &str, yes: &str) -> String {
    let change = steps.call("Sub", &[yes, no]);
    let change = steps.call("Mul", &[share, &change]);
    steps.call("Add", &[no, &change])
}
