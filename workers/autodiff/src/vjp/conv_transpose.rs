//! Y = X through a transposed convolution with W, plus a bias per channel.
//!
//! It is linear and the adjoint of a convolution: dX is the convolution of dY with the same weights, and dW
//! that of the convolution with image and signal exchanged. Source: Dumoulin and Visin, arXiv:1603.07285,
//! chapter 4.

use syncline_onnx::{attr_int, attr_ints};

use super::conv::{bias_gradient, weight_gradient, weight_shape};
use super::window::{Axis, Window};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, w) = (n.input(0), n.input(1));
    let weights = weight_shape(n)?;
    let window = adjoint_window(n, &weights[2..])?;
    let group = n.node.int("group", 1);
    let dx = n.needs(0).then(|| {
        let cropped = cropped(n, &window, dy);
        let ends = window.each(|axis| axis.overhang().max(0));
        let pads = [window.each(|axis| axis.begin), ends].concat();
        let attributes = [
            attr_ints("strides", &window.each(|axis| axis.stride)),
            attr_ints("dilations", &window.each(|axis| axis.dilation)),
            attr_ints("pads", &pads),
            attr_int("group", group),
        ];
        n.emitter.op("Conv", &[&cropped, w], &attributes)
    });
    let dw = n.needs(1).then(|| weight_gradient(n, &window, dy, x, &weights, group));
    let db = n.needs(2).then(|| bias_gradient(n, dy, weights.len()));
    Ok(vec![dx, dw, db])
}

/// The window of the convolution whose adjoint the node is: its image is Y, its output X.
pub(super) fn adjoint_window(n: &NodeGrad<'_>, kernel: &[i64]) -> Result<Window, AutodiffError> {
    let mut window = Window::of(n, n.output(), n.input(0), kernel)?;
    let automatic = n.node.string("auto_pad", "NOTSET");
    let sized = n.node.ints("output_shape").is_some_and(|shape| !shape.is_empty());
    let extra = n.node.ints("output_padding").unwrap_or_default().to_vec();
    for (at, axis) in window.axes.iter_mut().enumerate() {
        let bare = Axis { begin: 0, ..*axis };
        // What the windows touch, less what remains: the padding that was taken away.
        let total = (bare.overhang() + extra.get(at).copied().unwrap_or(0)).max(0);
        axis.begin = match automatic {
            "SAME_UPPER" => total / 2,
            // A given size comes first: ONNX Runtime pads for it, whether or not the node says VALID.
            _ if sized || automatic == "SAME_LOWER" => total - total / 2,
            "VALID" => 0,
            _ => axis.begin,
        };
    }
    Ok(window)
}

/// `dy` without what no window touches: elements that were added by `output_padding` alone.
fn cropped(n: &mut NodeGrad<'_>, window: &Window, dy: &str) -> String {
    let ends = window.each(|axis| axis.input + axis.overhang().min(0));
    if window.axes.iter().zip(&ends).all(|(axis, end)| axis.input == *end) {
        return dy.to_owned();
    }
    let spatial: Vec<i64> = (2..).take(ends.len()).collect();
    let (starts, axes) = (n.emitter.ints(&vec![0; ends.len()]), n.emitter.ints(&spatial));
    let ends = n.emitter.ints(&ends);
    n.emitter.op("Slice", &[dy, &starts, &ends, &axes], &[])
}
