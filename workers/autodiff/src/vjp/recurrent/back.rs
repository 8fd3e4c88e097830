//! The way back through the steps of one pass: where gradients come in, how they pass from step to step, and
//! the products of all steps at its end.

use syncline_onnx::attr_int;

use super::super::NodeGrad;
use super::super::lengths::Length;
use super::pass::{Pass, States};
use super::steps::Steps;
use crate::broadcast::sum;

/// Gradients of the operands of a pass.
pub(super) struct PassGrads {
    pub(super) x: String,
    pub(super) w: String,
    pub(super) r: String,
    /// Of both biases, one behind the other.
    pub(super) b: String,
    /// Of the first hidden state.
    pub(super) h0: String,
    /// Of the first cell state, if there is one.
    pub(super) c0: Option<String>,
}

/// A loop over the steps of a pass, from its last to its first.
pub(super) struct Back {
    pub(super) steps: Steps,
    /// The gradient of the state after a step, as the step behind has it.
    behind: String,
    /// The gradient of the state after a step.
    pub(super) dh: String,
}

impl Back {
    /// Begins with the gradient of the last state. To that of each step the one in the output of all states
    /// is added.
    pub(super) fn start(n: &mut NodeGrad<'_>, pass: &Pass) -> Self {
        let mut steps = Steps::default();
        let behind = steps.state(&last_grad(n, pass, 1));
        let of_steps = n.outputs.first().cloned().flatten();
        let dh = match of_steps {
            Some(dy) => {
                let dy = pass.part(n, &dy, 1);
                let dy = steps.read(&pass.or_zero(n, dy));
                steps.call("Add", &[&dy, &behind])
            }
            None => behind.clone(),
        };
        Self { steps, behind, dh }
    }

    /// The gradient of the state before a step is dA R, and dh itself where a sample has no step.
    pub(super) fn through_product(&mut self, n: &mut NodeGrad<'_>, pass: &Pass, da: &str) {
        let mut before = self.steps.call("MatMul", &[da, &pass.r]);
        if let Some(within) = &pass.within {
            let beyond = n.call("Not", &[within]);
            let beyond = self.steps.read(&n.mask(&beyond));
            let passed = self.steps.call("Mul", &[&self.dh, &beyond]);
            before = self.steps.call("Add", &[&before, &passed]);
        }
        self.set_before(&before);
    }

    /// Says what the gradient of the state before a step is.
    pub(super) fn set_before(&mut self, before: &str) {
        self.steps.set_next(&self.behind, before);
    }
}

/// The gradient of output `index`, a last state, for a pass: `[B, H]`, zeros if the loss does not see it.
pub(super) fn last_grad(n: &mut NodeGrad<'_>, pass: &Pass, index: usize) -> String {
    match n.outputs.get(index).cloned().flatten() {
        Some(grad) => pass.part(n, &grad, 0),
        None => {
            let shape = Length::lists(n, &[pass.samples.clone(), Length::Known(pass.hidden)]);
            n.zeros(&shape)
        }
    }
}

/// What the loops have found of a pass.
pub(super) struct Found {
    /// Of what the gates get from X, `[S, B, G H]`.
    pub(super) da: String,
    /// Of what they get from R and its bias; the same for most operators.
    pub(super) dq: String,
    /// Of R, if it is not dQ^T times the states before.
    pub(super) dr: Option<String>,
    /// Of the first hidden state, and of the first cell state if there is one.
    pub(super) firsts: (String, Option<String>),
}

impl Found {
    /// All gradients of the pass: one product for each operand, over all steps and samples.
    pub(super) fn gradients(self, n: &mut NodeGrad<'_>, pass: &Pass, states: &States) -> PassGrads {
        let Self { da, dq, dr, firsts: (h0, c0) } = self;
        let width = pass.gates * pass.hidden;
        let x = n.call("MatMul", &[&da, &pass.w]);
        let (da, dq) = (n.reshaped(&da, &[-1, width]), n.reshaped(&dq, &[-1, width]));
        let w = product_of_rows(n, &da, &pass.x);
        let r = dr.unwrap_or_else(|| product_of_rows(n, &dq, &states.rows));
        let (of_w, of_r) = (sum(n.emitter, &da, &[0]), sum(n.emitter, &dq, &[0]));
        let b = n.emitter.op("Concat", &[&of_w, &of_r], &[attr_int("axis", 0)]);
        PassGrads { x, w, r, b, h0, c0 }
    }
}

/// a^T b.
pub(super) fn product_of_rows(n: &mut NodeGrad<'_>, a: &str, b: &str) -> String {
    n.emitter.op("Gemm", &[a, b], &[attr_int("transA", 1)])
}
