//! Y = X convolved with W, plus a bias per channel, over any number of spatial axes.
//!
//! dX is the transposed convolution of dY with the same weights, strides, dilations and groups; see
//! [`image_gradient`]. dW sums products of dY with what each tap of the kernel read, see [`weight_gradient`].
//! dB sums dY over everything but the channels.
//! Source: Dumoulin and Visin, A guide to convolution arithmetic for deep learning, arXiv:1603.07285, chapter
//! 4.

use syncline_onnx::{ElementType, Extent, WeightGradient, attr_int, attr_ints};

use super::window::Window;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum;

/// Rows that a matrix product should have at least to be fast: taps of images with fewer channels share one
/// product.
const ROWS: i64 = 16;
/// An end of a Slice that runs to the beginning of an axis.
const BEGINNING: i64 = i32::MIN as i64;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, w) = (n.input(0), n.input(1));
    let weights = weight_shape(n)?;
    let window = Window::of(n, x, n.output(), &weights[2..])?;
    let group = n.node.int("group", 1);
    let dx = n.needs(0).then(|| image_gradient(n, &window, dy, w, &weights, group));
    let dw = n.needs(1).then(|| weight_gradient(n, &window, x, dy, &weights, group));
    let db = n.needs(2).then(|| bias_gradient(n, dy, weights.len()));
    Ok(vec![dx, dw, db])
}

/// dX. With strides of 1 it is a convolution of dY with the kernel turned around and its channels exchanged,
/// which ONNX Runtime splits among threads and, unlike `ConvTranspose`, has blocked kernels for. With fewer
/// channels than a product of matrices should have rows, `ConvTranspose` is the faster one.
fn image_gradient(
    n: &mut NodeGrad<'_>,
    window: &Window,
    dy: &str,
    w: &str,
    weights: &[i64],
    group: i64,
) -> String {
    let depthwise = weights[1] == 1 && weights[0] == group;
    let fits = depthwise || group == 1 && weights[1] >= ROWS;
    let Some(pads) = window.backward_pads().filter(|_| fits) else {
        return window.spread(n, dy, w, group);
    };
    let mut turned = w.to_owned();
    if !depthwise {
        let order: Vec<i64> = [1, 0].into_iter().chain(2..weights.len() as i64).collect();
        turned = n.emitter.op("Transpose", &[&turned], &[attr_ints("perm", &order)]);
    }
    let long: Vec<i64> =
        (2..).zip(&weights[2..]).filter(|(_, taps)| **taps > 1).map(|(axis, _)| axis).collect();
    if !long.is_empty() {
        let list = |n: &mut NodeGrad<'_>, value: i64| n.emitter.ints(&vec![value; long.len()]);
        let (last, beginning) = (list(n, -1), list(n, BEGINNING));
        let axes = n.emitter.ints(&long);
        turned = n.emitter.op("Slice", &[&turned, &last, &beginning, &axes, &last], &[]);
    }
    let attributes = [
        attr_ints("dilations", &window.each(|axis| axis.dilation)),
        attr_ints("pads", &pads),
        attr_int("group", group),
    ];
    n.emitter.op("Conv", &[dy, &turned], &attributes)
}

/// Shape of the weights, `[channels, channels / groups, kernel...]`.
pub(super) fn weight_shape(n: &NodeGrad<'_>) -> Result<Vec<i64>, AutodiffError> {
    let w = n.input(1);
    let dims = n.dims(w)?;
    if n.node.int("group", 1) < 1 {
        return Err(n.refuse("its channels are in no group".to_owned()));
    }
    if dims.len() < 3 {
        return Err(n.refuse(format!("its weights `{w}` have {} axes", dims.len())));
    }
    dims.iter().map(|dim| n.fixed(w, dim)).collect()
}

/// Sum over the batch and all positions.
pub(super) fn bias_gradient(n: &mut NodeGrad<'_>, dy: &str, rank: usize) -> String {
    let axes: Vec<i64> = (0..).take(rank).filter(|axis| *axis != 1).collect();
    sum(n.emitter, dy, &axes)
}

/// dW[m, c, tap] = sum over batch and positions of signal[m] * image[c] as `tap` reads it.
///
/// `weights` is the shape of W; `signal` is `[batch, weights[0], output...]`, `image` is `[batch, channels,
/// input...]`. The image is padded once and sliced once per tap; each product of matrices then has the
/// positions as its inner axis, which is several times faster than the textbook form (a convolution with
/// batch and channels exchanged), whose kernel is as large as the image. Depthwise kernels have no matrices:
/// a product and a sum. An annotation of the last node lets a worker take a faster way that is no standard
/// ONNX, see [`WeightGradient`].
pub(super) fn weight_gradient(
    n: &mut NodeGrad<'_>,
    window: &Window,
    image: &str,
    signal: &str,
    weights: &[i64],
    group: i64,
) -> String {
    let padded = window.padded(n, image, None);
    let taps = window.taps();
    let seen: Vec<String> = taps.iter().map(|tap| window.seen_by(n, &padded, tap)).collect();
    if weights[1] == 1 && weights[0] == group {
        let grad = depthwise(n, &seen, signal, weights);
        mark(n, &grad, window, image, signal, weights, group);
        return grad;
    }
    let (rows, columns, positions) = (weights[0] / group, weights[1], window.positions());
    let signal_image = signal;
    let signal = n.reshaped(signal, &[0, group, rows, positions]);
    let together = usize::try_from((ROWS + columns - 1) / columns.max(1)).unwrap_or(1);
    let parts: Vec<String> =
        seen.chunks(together).map(|seen| product(n, seen, &signal, weights, group, positions)).collect();
    let all = joined(n, &parts, 1);
    let turned = match taps.len() {
        1 => all,
        _ => n.emitter.op("Transpose", &[&all], &[attr_ints("perm", &[0, 2, 1])]),
    };
    let grad = n.reshaped(&turned, weights);
    mark(n, &grad, window, image, signal_image, weights, group);
    grad
}

/// Says on the node that makes `grad` what it is made of, if a worker has a faster way.
fn mark(
    n: &mut NodeGrad<'_>,
    grad: &str,
    window: &Window,
    image: &str,
    signal: &str,
    weights: &[i64],
    group: i64,
) {
    let extents = window.axes.iter().map(|axis| Extent {
        begin: axis.begin,
        end: axis.overhang(),
        output: axis.output,
        stride: axis.stride,
        dilation: axis.dilation,
    });
    let extents: Result<[Extent; 2], _> = extents.collect::<Vec<_>>().try_into();
    if let (Ok(axes), Ok(weights), ElementType::F32) = (extents, weights.try_into(), n.element()) {
        let (image, signal) = (image.to_owned(), signal.to_owned());
        n.emitter.annotate(grad, WeightGradient { image, signal, weights, group, axes }.metadata());
    }
}

/// The gradient for some of the taps: `[weights[0], taps, weights[1]]`.
fn product(
    n: &mut NodeGrad<'_>,
    seen: &[String],
    signal: &str,
    weights: &[i64],
    group: i64,
    positions: i64,
) -> String {
    let columns = weights[1];
    let rows: Vec<String> =
        seen.iter().map(|seen| n.reshaped(seen, &[0, group, columns, positions])).collect();
    let rows = joined(n, &rows, 2);
    let turned = n.emitter.op("Transpose", &[&rows], &[attr_ints("perm", &[0, 1, 3, 2])]);
    let products = n.emitter.op("MatMul", &[signal, &turned], &[]);
    let total = sum(n.emitter, &products, &[0]);
    n.reshaped(&total, &[weights[0], seen.len() as i64, columns])
}

/// One channel of the image per channel of the signal.
fn depthwise(n: &mut NodeGrad<'_>, seen: &[String], signal: &str, weights: &[i64]) -> String {
    let one = |seen: &String| {
        let product = n.emitter.op("Mul", &[signal, seen], &[]);
        let total = bias_gradient(n, &product, weights.len());
        n.reshaped(&total, &[weights[0], 1])
    };
    let parts: Vec<String> = seen.iter().map(one).collect();
    let all = joined(n, &parts, 1);
    n.reshaped(&all, weights)
}

/// Values one after the other along an axis.
pub(super) fn joined(n: &mut NodeGrad<'_>, parts: &[String], axis: i64) -> String {
    match parts {
        [one] => one.clone(),
        many => {
            let many: Vec<&str> = many.iter().map(String::as_str).collect();
            n.emitter.op("Concat", &many, &[attr_int("axis", axis)])
        }
    }
}
