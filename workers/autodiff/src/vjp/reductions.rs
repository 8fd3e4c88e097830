//! Reductions of x over axes. With `k` the gradient dy, and `y` the result, at the axes of x (size one where
//! reduced):
//!
//! | y | dx |
//! |---|---|
//! | ReduceSum, ReduceMean | k, k / count, repeated |
//! | ReduceMax, ReduceMin | k / ties where x = y, else 0: equal elements share |
//! | ReduceL1 | k sign x |
//! | ReduceL2 | x (k / y), 0 where y = 0 |
//! | ReduceSumSquare | 2 k x |
//! | ReduceLogSum | k e^-y, repeated |
//! | ReduceLogSumExp | k e^(x - y) |
//!
//! Axes are an attribute until operator set 17 and an input from 18 on; those of ReduceSum are an input from
//! 13 on. An input need not be constant. ReduceProd has a file of its own.

use syncline_onnx::{Dim, attr_int};

use super::elementary::times;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

type Outcome = Result<InputGrads, AutodiffError>;

pub(super) fn sum(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let k = at_axes(n, dy)?;
    Ok(vec![Some(repeated(n, &k))])
}

pub(super) fn mean(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let count = count(n)?;
    let share = n.call("Div", &[dy, &count]);
    sum(n, &share)
}

pub(super) fn extreme(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (k, y) = (at_axes(n, dy)?, at_axes(n, n.output())?);
    let taken = n.call("Equal", &[n.input(0), &y]);
    let mask = n.mask(&taken);
    let ties = again(n, "ReduceSum", &mask)?;
    let share = n.call("Div", &[&k, &ties]);
    times(n, &mask, &share)
}

pub(super) fn l1(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let k = at_axes(n, dy)?;
    let sign = n.call("Sign", &[n.input(0)]);
    times(n, &sign, &k)
}

pub(super) fn l2(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let zero = n.number(0.0);
    let ratio = n.call("Div", &[dy, n.output()]);
    let none = n.call("Equal", &[n.output(), &zero]);
    let ratio = n.call("Where", &[&none, &zero, &ratio]);
    let k = at_axes(n, &ratio)?;
    times(n, n.input(0), &k)
}

pub(super) fn sum_square(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let two = n.number(2.0);
    let twice = n.call("Mul", &[dy, &two]);
    let k = at_axes(n, &twice)?;
    times(n, n.input(0), &k)
}

pub(super) fn log_sum(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let total = n.call("Exp", &[n.output()]);
    let ratio = n.call("Div", &[dy, &total]);
    sum(n, &ratio)
}

pub(super) fn log_sum_exp(n: &mut NodeGrad<'_>, dy: &str) -> Outcome {
    let (k, y) = (at_axes(n, dy)?, at_axes(n, n.output())?);
    let rest = n.call("Sub", &[n.input(0), &y]);
    let weight = n.call("Exp", &[&rest]);
    times(n, &weight, &k)
}

/// What a reduction reduces.
enum Axes {
    Every,
    Nothing,
    /// A list of integers.
    Listed(String),
}

fn axes(n: &mut NodeGrad<'_>) -> Axes {
    if let Some(listed) = n.node.ints("axes").filter(|axes| !axes.is_empty()) {
        return Axes::Listed(n.emitter.ints(listed));
    }
    let given = n.input(1);
    // A list of which nothing is known may be empty as well; what reads it then does as the node does.
    let empty = n.types.get(given).is_some_and(|ty| ty.dims.first() == Some(&Dim::Fixed(0)));
    if !given.is_empty() && !empty {
        return Axes::Listed(given.to_owned());
    }
    if n.node.int("noop_with_empty_axes", 0) == 1 { Axes::Nothing } else { Axes::Every }
}

/// A value of the result's shape with the reduced axes put back, so that it fits x by broadcasting.
pub(super) fn at_axes(n: &mut NodeGrad<'_>, value: &str) -> Result<String, AutodiffError> {
    if n.node.int("keepdims", 1) == 1 {
        return Ok(value.to_owned());
    }
    Ok(match axes(n) {
        // A scalar fits everything; an empty list of axes that only the run knows makes the same scalar.
        Axes::Every | Axes::Nothing => value.to_owned(),
        Axes::Listed(axes) => n.call("Unsqueeze", &[value, &axes]),
    })
}

/// Another reduction over the same axes, which are kept.
pub(super) fn again(n: &mut NodeGrad<'_>, op: &str, value: &str) -> Result<String, AutodiffError> {
    let keep = attr_int("keepdims", 1);
    // ReduceSum reads its axes from an input in every operator set that is accepted, the others follow the
    // node.
    if op == n.node.op_type {
        let attributes = n.node.attribute.iter().filter(|other| other.name != "keepdims").cloned();
        let inputs: Vec<&str> = [value].into_iter().chain(n.node.input.get(1).map(String::as_str)).collect();
        return Ok(n.emitter.op(op, &inputs, &attributes.chain([keep]).collect::<Vec<_>>()));
    }
    let noop = attr_int("noop_with_empty_axes", n.node.int("noop_with_empty_axes", 0));
    Ok(match axes(n) {
        Axes::Nothing => value.to_owned(),
        Axes::Every => n.emitter.op(op, &[value], &[keep]),
        Axes::Listed(axes) => n.emitter.op(op, &[value, &axes], &[keep, noop]),
    })
}

/// The value at the axes of x, repeated to the shape of x.
fn repeated(n: &mut NodeGrad<'_>, value: &str) -> String {
    let shape = n.shape(n.input(0));
    n.call("Expand", &[value, &shape])
}

/// How many elements of x become one element of y, as a number.
fn count(n: &mut NodeGrad<'_>) -> Result<String, AutodiffError> {
    let x = n.input(0);
    let listed = match axes(n) {
        Axes::Nothing => return Ok(n.number(1.0)),
        Axes::Every => Some((0..n.dims(x)?.len() as i64).collect()),
        Axes::Listed(axes) => n.known_ints(&axes),
    };
    let dims = n.dims(x)?;
    let known = match listed {
        Some(axes) if !axes.is_empty() => {
            let sizes = axes.iter().map(|&axis| Ok(dims[n.axis(axis, dims.len())?].fixed()));
            let sizes: Option<Vec<usize>> = sizes.collect::<Result<_, AutodiffError>>()?;
            sizes.map(|sizes| sizes.into_iter().fold(1, usize::saturating_mul))
        }
        _ => None,
    };
    if let Some(count) = known {
        return Ok(n.number(count as f64));
    }
    let element = n.element();
    let (all, left) = (n.call("Size", &[x]), n.call("Size", &[n.output()]));
    // A selection may be empty, and integers are not divided by zero.
    let one = n.emitter.int(1);
    let left = n.call("Max", &[&left, &one]);
    let count = n.call("Div", &[&all, &left]);
    Ok(n.emitter.cast(&count, element))
}
