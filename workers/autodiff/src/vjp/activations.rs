//! Activation functions with parameters of their own, attributes with the defaults of the standard.
//!
//! | y | dx |
//! |---|---|
//! | LeakyRelu | dy where x > 0, else alpha dy |
//! | Elu: alpha (e^x - 1) below 0 | dy where x > 0, else (y + alpha) dy |
//! | Selu: gamma x, below 0 gamma alpha (e^x - 1) | gamma dy where x > 0, else (y + gamma alpha) dy |
//! | Celu: alpha (e^(x / alpha) - 1) below 0 | dy where x > 0, else (y / alpha + 1) dy |
//! | ThresholdedRelu: x above alpha, else 0 | dy where x > alpha, else 0 |
//! | HardSigmoid: alpha x + beta within 0 and 1 | alpha dy where 0 < y < 1, else 0 |
//! | HardSwish: x HardSigmoid(x), alpha 1/6, beta 1/2 | (x / 3 + 1/2) dy within -3 and 3, dy above, 0 below |
//! | Mish: x t with t = tanh(softplus x) | (t + x s (1 - t^2)) dy with s = sigmoid x |
//! | Swish: x s with s = sigmoid(alpha x) | (s + alpha y (1 - s)) dy |
//! | Softplus: log(1 + e^x) | sigmoid(x) dy |
//! | Softsign: x / (1 + abs x) | dy / (1 + abs x)^2 |

use super::elementary::times;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

type Outcome = Result<InputGrads, AutodiffError>;

pub(super) fn leaky_relu(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let alpha = attribute(n, "alpha", 0.01);
    let below = n.call("Mul", &[dy, &alpha]);
    by_sign(n, dy, &below)
}

pub(super) fn elu(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let alpha = attribute(n, "alpha", 1.0);
    let slope = n.call("Add", &[n.output(), &alpha]);
    let below = n.call("Mul", &[dy, &slope]);
    by_sign(n, dy, &below)
}

pub(super) fn selu(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    // Klambauer et al., NIPS 2017, arXiv:1706.02515: the values that keep mean 0 and variance 1.
    let alpha = f64::from(n.node.float("alpha", 1.673_263_2));
    let gamma = f64::from(n.node.float("gamma", 1.050_701));
    let (product, gamma) = (n.number(alpha * gamma), n.number(gamma));
    let slope = n.call("Add", &[n.output(), &product]);
    let above = n.call("Mul", &[dy, &gamma]);
    let below = n.call("Mul", &[dy, &slope]);
    by_sign(n, &above, &below)
}

pub(super) fn celu(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (alpha, one) = (attribute(n, "alpha", 1.0), n.number(1.0));
    let ratio = n.call("Div", &[n.output(), &alpha]);
    let slope = n.call("Add", &[&ratio, &one]);
    let below = n.call("Mul", &[dy, &slope]);
    by_sign(n, dy, &below)
}

pub(super) fn thresholded_relu(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let alpha = attribute(n, "alpha", 1.0);
    let passed = n.call("Greater", &[n.input(0), &alpha]);
    masked(n, dy, &passed)
}

pub(super) fn hard_sigmoid(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (alpha, zero, one) = (attribute(n, "alpha", 0.2), n.number(0.0), n.number(1.0));
    let above = n.call("Greater", &[n.output(), &zero]);
    let below = n.call("Less", &[n.output(), &one]);
    let within = n.call("And", &[&above, &below]);
    let scaled = n.call("Mul", &[dy, &alpha]);
    masked(n, &scaled, &within)
}

pub(super) fn hard_swish(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (x, zero, half, three) = (n.input(0), n.number(0.0), n.number(0.5), n.number(3.0));
    let ratio = n.call("Div", &[x, &three]);
    let middle = n.call("Add", &[&ratio, &half]);
    let positive = n.call("Greater", &[x, &zero]);
    let outer = n.mask(&positive);
    let size = n.call("Abs", &[x]);
    let within = n.call("Less", &[&size, &three]);
    let slope = n.call("Where", &[&within, &middle, &outer]);
    times(n, dy, &slope)
}

pub(super) fn mish(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (x, one) = (n.input(0), n.number(1.0));
    let softplus = n.call("Softplus", &[x]);
    let t = n.call("Tanh", &[&softplus]);
    let t2 = n.call("Mul", &[&t, &t]);
    let rest = n.call("Sub", &[&one, &t2]);
    let s = n.call("Sigmoid", &[x]);
    let product = n.call("Mul", &[x, &s]);
    let product = n.call("Mul", &[&product, &rest]);
    let slope = n.call("Add", &[&t, &product]);
    times(n, dy, &slope)
}

pub(super) fn swish(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (alpha, one) = (attribute(n, "alpha", 1.0), n.number(1.0));
    let scaled = n.call("Mul", &[n.input(0), &alpha]);
    let s = n.call("Sigmoid", &[&scaled]);
    let rest = n.call("Sub", &[&one, &s]);
    let y = n.call("Mul", &[n.output(), &alpha]);
    let product = n.call("Mul", &[&y, &rest]);
    let slope = n.call("Add", &[&s, &product]);
    times(n, dy, &slope)
}

pub(super) fn softplus(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let slope = n.call("Sigmoid", &[n.input(0)]);
    times(n, dy, &slope)
}

pub(super) fn softsign(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let one = n.number(1.0);
    let size = n.call("Abs", &[n.input(0)]);
    let sum = n.call("Add", &[&size, &one]);
    let square = n.call("Mul", &[&sum, &sum]);
    Ok(vec![Some(n.call("Div", &[dy, &square]))])
}

fn attribute(n: &mut NodeGrad<'_>, name: &str, default: f32) -> String {
    let value = n.node.float(name, default);
    n.number(f64::from(value))
}

/// `above` where x > 0, else `below`.
fn by_sign(n: &mut NodeGrad<'_>, above: &str, below: &str) -> Outcome {
    let zero = n.number(0.0);
    let positive = n.call("Greater", &[n.input(0), &zero]);
    Ok(vec![Some(n.call("Where", &[&positive, above, below]))])
}

fn masked(n: &mut NodeGrad<'_>, value: &str, condition: &str) -> Outcome {
    let mask = n.mask(condition);
    times(n, value, &mask)
}
