//! Forward operators for which ONNX Runtime has no float64 kernel, by others for which it has.
//!
//! For the gradient check alone: speed does not matter, every shape is fixed, and the graph is written with
//! float32 constants that the caller widens. What is not listed stays, and keeps the check in float32.
//!
//! | operator | written as |
//! |---|---|
//! | Conv | for each tap of the kernel a product of its weights with what it sees, all added up |
//! | ConvTranspose | for each tap the product of its weights with x, spread by the strides and moved into place |
//! | AveragePool, GlobalAveragePool | sums and counts |
//! | InstanceNormalization, LayerNormalization | their definitions; the latter has a kernel, but gives statistics in float32 |
//! | Resize | for each axis the product with the matrix of its weights |
//! | GRU, LSTM, RNN | a `Scan` over their steps |
//! | Erf | quadrature, see `error_function` |
//! | Gelu, HardSigmoid, HardSwish, Elu, Selu, Celu, Softplus, Mish, PRelu, Softsign, Mean | their definitions |

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Dim, ElementType, Types, attr_int, attr_ints};

use super::conv::weight_shape;
use super::conv_transpose::adjoint_window;
use super::error_function::erf;
use super::window::Window;
use super::{NodeGrad, mean_pool, recurrent, resize};
use crate::AutodiffError;
use crate::emitter::Emitter;

/// The graph with those operators written out.
pub fn float64_form(graph: GraphProto, types: &Types) -> GraphProto {
    let (mut emitter, nodes) = Emitter::rewriting(graph);
    for node in nodes {
        let mut part =
            NodeGrad { emitter: &mut emitter, node: &node, types, outputs: &[], needs: &[], rounded: false };
        match written_out(&mut part) {
            Ok(Some(values)) => {
                for (value, output) in
                    values.into_iter().zip(&node.output).filter(|(_, output)| !output.is_empty())
                {
                    emitter.push_node(NodeProto::named(output, "Identity", &[&value], &[]));
                }
            }
            // What cannot be written out stays; whether it can be run is found out when the graph is loaded.
            _ => emitter.push_node(node),
        }
    }
    emitter.rewritten()
}

/// The values of the node's outputs.
fn written_out(n: &mut NodeGrad<'_>) -> Result<Option<Vec<String>>, AutodiffError> {
    if n.node.domain.is_empty()
        && let Some(values) = recurrent::written_out(n)?
    {
        return Ok(Some(values));
    }
    let float = n.types.get(n.output()).is_some_and(|ty| ty.element == ElementType::F32);
    if !n.node.domain.is_empty() || !float {
        return Ok(None);
    }
    if n.node.op_type == "LayerNormalization" {
        return layer_norm(n).map(Some);
    }
    if n.node.output.len() > 1 {
        return Ok(None);
    }
    let x = n.input(0);
    let value = match n.node.op_type.as_str() {
        "Conv" => conv(n)?,
        "ConvTranspose" => conv_transpose(n)?,
        "AveragePool" => average_pool(n)?,
        "GlobalAveragePool" => mean_over_space(n, x)?,
        "InstanceNormalization" => instance_norm(n)?,
        "Mean" => {
            let inputs: Vec<&str> = n.node.input.iter().map(String::as_str).collect();
            let (total, count) = (n.call("Sum", &inputs), n.number(inputs.len() as f64));
            n.call("Div", &[&total, &count])
        }
        "Resize" => resize::forward(n)?,
        _ => return Ok(activation(n, x).map(|value| vec![value])),
    };
    Ok(Some(vec![value]))
}

/// An activation of `x`.
fn activation(n: &mut NodeGrad<'_>, x: &str) -> Option<String> {
    let alpha = |n: &NodeGrad<'_>, default: f32| f64::from(n.node.float("alpha", default));
    let value = match n.node.op_type.as_str() {
        "Erf" => erf(n, x),
        "Gelu" if n.node.string("approximate", "none") == "none" => gelu(n, x),
        "HardSigmoid" => {
            let (slope, rise) = (alpha(n, 0.2), f64::from(n.node.float("beta", 0.5)));
            hard_sigmoid(n, x, slope, rise)
        }
        "HardSwish" => {
            let gate = hard_sigmoid(n, x, 1.0 / 6.0, 0.5);
            n.call("Mul", &[x, &gate])
        }
        "Elu" => {
            let alpha = alpha(n, 1.0);
            exponential_below(n, x, 1.0, alpha, 1.0)
        }
        "Celu" => {
            let alpha = alpha(n, 1.0);
            exponential_below(n, x, 1.0, alpha, alpha)
        }
        "Selu" => {
            let (alpha, gamma) = (alpha(n, 1.673_263_2), f64::from(n.node.float("gamma", 1.050_701)));
            exponential_below(n, x, gamma, alpha, 1.0)
        }
        "Softplus" => softplus(n, x),
        "PRelu" => {
            let zero = n.number(0.0);
            let (above, below) = (n.call("Max", &[x, &zero]), n.call("Min", &[x, &zero]));
            let sloping = n.call("Mul", &[&below, n.input(1)]);
            n.call("Add", &[&above, &sloping])
        }
        "Mish" => {
            let soft = softplus(n, x);
            let gate = n.call("Tanh", &[&soft]);
            n.call("Mul", &[x, &gate])
        }
        "Softsign" => {
            let (one, size) = (n.number(1.0), n.call("Abs", &[x]));
            let below = n.call("Add", &[&size, &one]);
            n.call("Div", &[x, &below])
        }
        _ => return None,
    };
    Some(value)
}

/// Sizes of a value, all of which are known.
fn sizes(n: &NodeGrad<'_>, value: &str) -> Result<Vec<i64>, AutodiffError> {
    n.dims(value)?.iter().map(|dim: &Dim| n.fixed(value, dim)).collect()
}

/// The weights of a tap: `[groups, out, in]` from `[groups, out, in, taps]`.
fn tap_of(n: &mut NodeGrad<'_>, weights: &str, tap: usize) -> String {
    let index = n.emitter.int(tap as i64);
    n.emitter.op("Gather", &[weights, &index], &[attr_int("axis", 3)])
}

fn conv(n: &mut NodeGrad<'_>) -> Result<String, AutodiffError> {
    let (x, w, group) = (n.input(0), n.input(1), n.node.int("group", 1));
    let (weights, out) = (weight_shape(n)?, sizes(n, n.output())?);
    let window = Window::of(n, x, n.output(), &weights[2..])?;
    let (positions, taps) = (window.positions(), window.taps());
    let kernel = n.reshaped(w, &[group, weights[0] / group, weights[1], taps.len() as i64]);
    let padded = window.padded(n, x, None);
    let mut terms = Vec::with_capacity(taps.len());
    for (index, tap) in taps.iter().enumerate() {
        let seen = window.seen_by(n, &padded, tap);
        let seen = n.reshaped(&seen, &[out[0], group, weights[1], positions]);
        let tap = tap_of(n, &kernel, index);
        terms.push(n.call("MatMul", &[&tap, &seen]));
    }
    let total = total(n, &terms);
    let y = n.reshaped(&total, &out);
    Ok(with_bias(n, &y, out.len()))
}

fn conv_transpose(n: &mut NodeGrad<'_>) -> Result<String, AutodiffError> {
    let (x, w, group) = (n.input(0), n.input(1), n.node.int("group", 1));
    let (from, weights, out) = (sizes(n, x)?, weight_shape(n)?, sizes(n, n.output())?);
    let window = adjoint_window(n, &weights[2..])?;
    let taps = window.taps();
    // [groups, in, out, taps] -> [groups, out, in, taps]
    let kernel = n.reshaped(w, &[group, weights[0] / group, weights[1], taps.len() as i64]);
    let kernel = n.emitter.op("Transpose", &[&kernel], &[attr_ints("perm", &[0, 2, 1, 3])]);
    let signal = n.reshaped(x, &[from[0], group, from[1] / group, from[2..].iter().product()]);
    let mut terms = Vec::with_capacity(taps.len());
    for (index, tap) in taps.iter().enumerate() {
        let tap_weights = tap_of(n, &kernel, index);
        let term = n.call("MatMul", &[&tap_weights, &signal]);
        let mut term = n.reshaped(&term, &[&out[..2], &from[2..]].concat());
        let mut shape = [&out[..2], &from[2..]].concat();
        for (at, (axis, start)) in window.axes.iter().zip(tap).enumerate() {
            // Each element followed by zeros up to the next, then moved to where the tap puts it.
            let parted = [&shape[..at + 3], &[1], &shape[at + 3..]].concat();
            term = n.reshaped(&term, &parted);
            term = padded_at(n, &term, parted.len(), at + 3, [0, axis.stride - 1]);
            shape[at + 2] *= axis.stride;
            term = n.reshaped(&term, &shape);
            let begin = start - axis.begin;
            term = padded_at(n, &term, shape.len(), at + 2, [begin, axis.input - begin - shape[at + 2]]);
            shape[at + 2] = axis.input;
        }
        terms.push(term);
    }
    let y = total(n, &terms);
    Ok(with_bias(n, &y, out.len()))
}

/// Zeros around one axis; negative numbers take elements away.
fn padded_at(n: &mut NodeGrad<'_>, value: &str, rank: usize, axis: usize, around: [i64; 2]) -> String {
    let mut pads = vec![0; 2 * rank];
    (pads[axis], pads[rank + axis]) = (around[0], around[1]);
    let pads = n.emitter.ints(&pads);
    n.call("Pad", &[value, &pads])
}

fn total(n: &mut NodeGrad<'_>, terms: &[String]) -> String {
    n.call("Sum", &terms.iter().map(String::as_str).collect::<Vec<_>>())
}

fn with_bias(n: &mut NodeGrad<'_>, y: &str, rank: usize) -> String {
    if n.input(2).is_empty() {
        return y.to_owned();
    }
    let column = [vec![-1], vec![1; rank - 2]].concat();
    let bias = n.reshaped(n.input(2), &column);
    n.call("Add", &[y, &bias])
}

fn average_pool(n: &mut NodeGrad<'_>) -> Result<String, AutodiffError> {
    // With a node for each tap.
    Window::of(n, n.input(0), n.output(), n.node.ints("kernel_shape").unwrap_or_default())?;
    let window = mean_pool::window(n)?;
    let share = mean_pool::share(n, &window);
    let padded = window.padded(n, n.input(0), None);
    let seen: Vec<String> = window.taps().iter().map(|tap| window.seen_by(n, &padded, tap)).collect();
    let total = total(n, &seen);
    Ok(n.call("Mul", &[&total, &share]))
}

/// Mean over everything but batch and channels, whose axes are kept.
fn mean_over_space(n: &mut NodeGrad<'_>, value: &str) -> Result<String, AutodiffError> {
    let spatial = n.spatial(n.input(0))?;
    let axes: Vec<i64> = (2..).take(spatial.len()).collect();
    let (axes, count) = (n.emitter.ints(&axes), n.number(spatial.iter().product::<i64>() as f64));
    let total = n.call("ReduceSum", &[value, &axes]);
    Ok(n.call("Div", &[&total, &count]))
}

fn instance_norm(n: &mut NodeGrad<'_>) -> Result<String, AutodiffError> {
    let x = n.input(0);
    let column = [vec![-1], vec![1; n.spatial(x)?.len()]].concat();
    let mean = mean_over_space(n, x)?;
    let centered = n.call("Sub", &[x, &mean]);
    let square = n.call("Mul", &[&centered, &centered]);
    let variance = mean_over_space(n, &square)?;
    let epsilon = n.number(n.node.float("epsilon", 1e-5).into());
    let variance = n.call("Add", &[&variance, &epsilon]);
    let deviation = n.call("Sqrt", &[&variance]);
    let hat = n.call("Div", &[&centered, &deviation]);
    let (scale, bias) = (n.reshaped(n.input(1), &column), n.reshaped(n.input(2), &column));
    let scaled = n.call("Mul", &[&hat, &scale]);
    Ok(n.call("Add", &[&scaled, &bias]))
}

/// The result, the mean, and one over the standard deviation.
fn layer_norm(n: &mut NodeGrad<'_>) -> Result<Vec<String>, AutodiffError> {
    let x = n.input(0);
    let sizes = sizes(n, x)?;
    let first = n.axis(n.node.int("axis", -1), sizes.len())?;
    let axes: Vec<i64> = (first as i64..).take(sizes.len() - first).collect();
    let (axes, count) = (n.emitter.ints(&axes), n.number(sizes[first..].iter().product::<i64>() as f64));
    let mean_of = |n: &mut NodeGrad<'_>, value: &str| {
        let total = n.call("ReduceSum", &[value, &axes]);
        n.call("Div", &[&total, &count])
    };
    let mean = mean_of(n, x);
    let centered = n.call("Sub", &[x, &mean]);
    let square = n.call("Mul", &[&centered, &centered]);
    let variance = mean_of(n, &square);
    let epsilon = n.number(n.node.float("epsilon", 1e-5).into());
    let variance = n.call("Add", &[&variance, &epsilon]);
    let deviation = n.call("Sqrt", &[&variance]);
    let inverse = n.call("Reciprocal", &[&deviation]);
    let hat = n.call("Mul", &[&centered, &inverse]);
    let mut y = n.call("Mul", &[&hat, n.input(1)]);
    if !n.input(2).is_empty() {
        y = n.call("Add", &[&y, n.input(2)]);
    }
    Ok(vec![y, mean, inverse])
}

fn hard_sigmoid(n: &mut NodeGrad<'_>, x: &str, slope: f64, rise: f64) -> String {
    let (slope, rise, zero, one) = (n.number(slope), n.number(rise), n.number(0.0), n.number(1.0));
    let line = n.call("Mul", &[x, &slope]);
    let line = n.call("Add", &[&line, &rise]);
    let above = n.call("Max", &[&line, &zero]);
    n.call("Min", &[&above, &one])
}

/// factor * (max(x, 0) + alpha * (exp(min(x, 0) / width) - 1)).
fn exponential_below(n: &mut NodeGrad<'_>, x: &str, factor: f64, alpha: f64, width: f64) -> String {
    let (zero, one) = (n.number(0.0), n.number(1.0));
    let (factor, alpha, width) = (n.number(factor), n.number(alpha), n.number(width));
    let (above, below) = (n.call("Max", &[x, &zero]), n.call("Min", &[x, &zero]));
    let scaled = n.call("Div", &[&below, &width]);
    let power = n.call("Exp", &[&scaled]);
    let power = n.call("Sub", &[&power, &one]);
    let below = n.call("Mul", &[&power, &alpha]);
    let sum = n.call("Add", &[&above, &below]);
    n.call("Mul", &[&sum, &factor])
}

fn softplus(n: &mut NodeGrad<'_>, x: &str) -> String {
    let (zero, one) = (n.number(0.0), n.number(1.0));
    let above = n.call("Max", &[x, &zero]);
    let size = n.call("Abs", &[x]);
    let size = n.call("Neg", &[&size]);
    let power = n.call("Exp", &[&size]);
    let power = n.call("Add", &[&power, &one]);
    let rest = n.call("Log", &[&power]);
    n.call("Add", &[&above, &rest])
}

fn gelu(n: &mut NodeGrad<'_>, x: &str) -> String {
    let (half, one, root) = (n.number(0.5), n.number(1.0), n.number(std::f64::consts::FRAC_1_SQRT_2));
    let scaled = n.call("Mul", &[x, &root]);
    let erf = erf(n, &scaled);
    let gate = n.call("Add", &[&erf, &one]);
    let gate = n.call("Mul", &[&gate, &half]);
    n.call("Mul", &[x, &gate])
}
