//! Elementary functions of one variable: dx = dy * y', with y' written in y where that is cheaper than in x.
//!
//! | y | y' | y | y' | y | y' |
//! |---|---|---|---|---|---|
//! | -x | -1 | abs x | sign x | 1 / x | -y^2 |
//! | exp x | y | log x | 1 / x | sqrt x | 1 / (2 y) |
//! | sin x | cos x | cos x | -sin x | tan x | 1 + y^2 |
//! | asin x | 1 / sqrt(1 - x^2) | acos x | -1 / sqrt(1 - x^2) | atan x | 1 / (1 + x^2) |
//! | sinh x | cosh x | cosh x | sinh x | erf x | 2 / sqrt(pi) * e^(-x^2) |
//! | asinh x | 1 / sqrt(x^2 + 1) | acosh x | 1 / sqrt(x^2 - 1) | atanh x | 1 / (1 - x^2) |

use std::f64::consts::FRAC_2_SQRT_PI;

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

type Outcome = Result<InputGrads, AutodiffError>;

pub(super) fn neg(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    only(n.call("Neg", &[dy]))
}

pub(super) fn abs(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let sign = n.call("Sign", &[n.input(0)]);
    times(n, dy, &sign)
}

pub(super) fn reciprocal(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let square = n.call("Mul", &[n.output(), n.output()]);
    let product = n.call("Mul", &[dy, &square]);
    only(n.call("Neg", &[&product]))
}

pub(super) fn exp(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    times(n, dy, n.output())
}

pub(super) fn log(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    over(n, dy, n.input(0))
}

pub(super) fn sqrt(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let half = n.number(0.5);
    let scaled = n.call("Mul", &[dy, &half]);
    over(n, &scaled, n.output())
}

pub(super) fn sin(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let cos = n.call("Cos", &[n.input(0)]);
    times(n, dy, &cos)
}

pub(super) fn cos(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let sin = n.call("Sin", &[n.input(0)]);
    let product = n.call("Mul", &[dy, &sin]);
    only(n.call("Neg", &[&product]))
}

pub(super) fn tan(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let slope = one_and_square(n, "Add", n.output());
    times(n, dy, &slope)
}

pub(super) fn asin(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let square = one_and_square(n, "Sub", n.input(0));
    let root = n.call("Sqrt", &[&square]);
    over(n, dy, &root)
}

pub(super) fn acos(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let negative = n.call("Neg", &[dy]);
    asin(n, &negative)
}

pub(super) fn atan(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let sum = one_and_square(n, "Add", n.input(0));
    over(n, dy, &sum)
}

pub(super) fn sinh(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let cosh = n.call("Cosh", &[n.input(0)]);
    times(n, dy, &cosh)
}

pub(super) fn cosh(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let sinh = n.call("Sinh", &[n.input(0)]);
    times(n, dy, &sinh)
}

pub(super) fn asinh(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let sum = one_and_square(n, "Add", n.input(0));
    let root = n.call("Sqrt", &[&sum]);
    over(n, dy, &root)
}

pub(super) fn acosh(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (x, one) = (n.input(0), n.number(1.0));
    let square = n.call("Mul", &[x, x]);
    let rest = n.call("Sub", &[&square, &one]);
    let root = n.call("Sqrt", &[&rest]);
    over(n, dy, &root)
}

pub(super) fn atanh(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let rest = one_and_square(n, "Sub", n.input(0));
    over(n, dy, &rest)
}

pub(super) fn erf(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    // The factor goes into the exponent: a pass over the values less.
    let (x, factor) = (n.input(0), n.number(FRAC_2_SQRT_PI.ln()));
    let square = n.call("Mul", &[x, x]);
    let exponent = n.call("Sub", &[&factor, &square]);
    let slope = n.call("Exp", &[&exponent]);
    times(n, dy, &slope)
}

/// 1 + v^2 or 1 - v^2.
fn one_and_square(n: &mut NodeGrad<'_>, sign: &str, v: &str) -> String {
    let one = n.number(1.0);
    let square = n.call("Mul", &[v, v]);
    n.call(sign, &[&one, &square])
}

/// The gradient for an input on which the output depends with this slope.
pub(super) fn times(n: &mut NodeGrad<'_>, dy: &str, slope: &str) -> Outcome {
    only(n.call("Mul", &[dy, slope]))
}

fn over(n: &mut NodeGrad<'_>, dy: &str, divisor: &str) -> Outcome {
    only(n.call("Div", &[dy, divisor]))
}

fn only(dx: String) -> Outcome {
    Ok(vec![Some(dx)])
}
