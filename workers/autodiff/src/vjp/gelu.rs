//! y = x * P(x) with P the distribution function of the normal distribution, or its approximation by tanh.
//! Hendrycks and Gimpel, 2016, arXiv:1606.08415.
//!
//! Exact: dx = dy * (P(x) + x * p(x)) with P(x) = (1 + erf(x / sqrt 2)) / 2 and p(x) = e^(-x^2 / 2) / sqrt(2
//! pi). Tanh: P(x) = (1 + t) / 2 with t = tanh(c x (1 + a x^2)), and p(x) = (1 - t^2) / 2 * c (1 + 3 a x^2).

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

/// sqrt(2 / pi).
const C: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// Chosen by the authors to fit.
const A: f64 = 0.044715;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let x = n.input(0);
    let (distribution, density) =
        if n.node.string("approximate", "none") == "tanh" { by_tanh(n, x) } else { exact(n, x) };
    let weighted = n.call("Mul", &[x, &density]);
    let slope = n.call("Add", &[&distribution, &weighted]);
    Ok(vec![Some(n.call("Mul", &[dy, &slope]))])
}

/// P(x) and p(x).
fn exact(n: &mut NodeGrad<'_>, x: &str) -> (String, String) {
    let root = n.number(FRAC_1_SQRT_2);
    let scaled = n.call("Mul", &[x, &root]);
    let erf = n.call("Erf", &[&scaled]);
    let distribution = from_odd(n, &erf);
    let square = n.call("Mul", &[&scaled, &scaled]);
    let factor = n.number((0.5 * C).ln());
    let exponent = n.call("Sub", &[&factor, &square]);
    (distribution, n.call("Exp", &[&exponent]))
}

/// The same for the approximation.
fn by_tanh(n: &mut NodeGrad<'_>, x: &str) -> (String, String) {
    let (one, c) = (n.number(1.0), n.number(C));
    let (ca, ca3) = (n.number(C * A), n.number(0.5 * C * A * 3.0));
    let square = n.call("Mul", &[x, x]);
    let inner = n.call("Mul", &[&square, &ca]);
    let inner = n.call("Add", &[&inner, &c]);
    let inner = n.call("Mul", &[&inner, x]);
    let t = n.call("Tanh", &[&inner]);
    let distribution = from_odd(n, &t);
    let t2 = n.call("Mul", &[&t, &t]);
    let rest = n.call("Sub", &[&one, &t2]);
    let half_c = n.number(0.5 * C);
    let slope = n.call("Mul", &[&square, &ca3]);
    let slope = n.call("Add", &[&slope, &half_c]);
    (distribution, n.call("Mul", &[&rest, &slope]))
}

/// (1 + v) / 2.
fn from_odd(n: &mut NodeGrad<'_>, v: &str) -> String {
    let half = n.number(0.5);
    let scaled = n.call("Mul", &[v, &half]);
    n.call("Add", &[&scaled, &half])
}
