//! The gradient of the weights of a two-dimensional convolution, as a convolution itself.
//!
//! ```text
//! dW[m, c, t] = sum over batch n and positions o of signal[n, m, o] * image[n, c, o * stride + t * dilation - begin]
//! ```
//!
//! With batch and channels exchanged this is the convolution of the image with the signal as its
//! kernel, whose taps lie `stride` apart and whose windows lie `dilation` apart. The textbook form, and slow
//! with ordinary kernels, which copy the whole image once per element of the result; the nchwc_op ones copy
//! nothing, and add up over blocks of samples. A batch that is no whole number of blocks is filled up with
//! zeros.
//!
//! Depthwise, no channels are added up, and samples take the place of positions: the images of a batch are
//! concatenated along the height, and so are the signals, with zeros in between so that no window reads two
//! images.

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{Extent, Graph, ValueId, WeightGradient, attr_int, attr_ints};

use super::{in_blocks, nchwc_op};

/// No axis of an image is longer; keeps products of two far from overflow.
const LONGEST: i64 = 1 << 24;

/// Writes the nchwc_op form under the name of the node's output; `None` if there is none.
pub(super) fn write(
    gradient: &WeightGradient,
    graph: &mut Graph,
    node: &NodeProto,
    lanes: i64,
) -> Option<()> {
    let [channels, per_group, height, width] = gradient.weights;
    let extents = gradient.axes.iter().flat_map(|a| [a.output, a.stride, a.dilation]);
    let sound = gradient.weights.into_iter().chain(extents).all(|size| (1..LONGEST).contains(&size))
        && gradient.axes.iter().all(|a| a.begin.abs() < LONGEST && a.end.abs() < LONGEST)
        && gradient.axes.iter().zip([height, width]).all(|(axis, kernel)| reach(axis, kernel) < LONGEST);
    if !sound || channels % lanes != 0 || height * width == 1 {
        return None;
    }
    let value = |name: &String| graph.value(name);
    let (image, signal) = (value(&gradient.image)?, value(&gradient.signal)?);
    let part = Part { gradient, image, signal, output: value(node.output.first()?)?, lanes };
    match (gradient.group, per_group) {
        (1, _) => dense(&part, graph),
        (group, 1) if group == channels => depthwise(&part, graph)?,
        _ => return None,
    }
    Some(())
}

/// What is known of one gradient.
struct Part<'a> {
    gradient: &'a WeightGradient,
    image: ValueId,
    signal: ValueId,
    output: ValueId,
    lanes: i64,
}

fn dense(part: &Part<'_>, graph: &mut Graph) {
    let Part { gradient, image, signal, output, lanes } = *part;
    let (channels, [rows, columns]) = (gradient.weights[0], gradient.axes);
    let missing = missing(graph, image, lanes);
    let around = [rows.begin, columns.begin, rows.end, columns.end];
    let image = filled(graph, image, missing, around);
    let image = graph.transpose(image, &[1, 0, 2, 3]);
    let image = in_blocks(graph, image);

    let signal = filled(graph, signal, missing, [0; 4]);
    let signal = in_blocks(graph, signal);
    // [blocks of samples, lanes, blocks of channels, positions, lanes], to be weights in blocks.
    let positions = rows.output * columns.output;
    let signal = graph.reshape(signal, &[-1, lanes, channels / lanes, positions, lanes]);
    let signal = graph.transpose(signal, &[2, 0, 3, 1, 4]);
    let signal = graph.reshape(signal, &[channels, -1, rows.output, columns.output]);

    let sums = convolved(gradient, graph, image, signal, 1, 0);
    let sums = nchwc_op(graph, "ReorderOutput", &[sums], &[attr_int("channels", channels)]);
    graph.op_as(output, "", "Transpose", &[sums], &[attr_ints("perm", &[1, 0, 2, 3])]);
}

fn depthwise(part: &Part<'_>, graph: &mut Graph) -> Option<()> {
    let Part { gradient, image, signal, output, lanes } = *part;
    let ([channels, _, height, width], [rows, columns]) = (gradient.weights, gradient.axes);
    // Zeros below the concatenated image, where the windows of the last taps end.
    let below = (height - 1) * rows.dilation + 1 - rows.stride;
    if below < 0 {
        return None;
    }
    // Rows of an image within the concatenated one, a whole number of strides; and of a signal within the
    // kernel.
    let steps = (reach(&rows, height) + rows.stride - 1) / rows.stride;
    let high = steps * rows.stride;
    let inside = reach(&rows, height) - rows.begin - rows.end;
    let wide = reach(&columns, width);
    let begin = [rows.begin, columns.begin, high - rows.begin - inside, columns.end];
    let image = stack_images(graph, image, begin, channels / lanes, high * wide * lanes);
    let image = graph.reshape(image, &[1, channels, -1, wide]);
    let (blocks, size) = (channels / lanes, steps * columns.output * lanes);
    let signal = stack_images(graph, signal, [0, 0, steps - rows.output, 0], blocks, size);
    let signal = graph.reshape(signal, &[channels, 1, -1, columns.output]);

    let sums = convolved(gradient, graph, image, signal, channels, below);
    let sums = nchwc_op(graph, "ReorderOutput", &[sums], &[attr_int("channels", channels)]);
    let shape = graph.ints(&gradient.weights);
    graph.op_as(output, "", "Reshape", &[sums, shape], &[]);
    Some(())
}

/// The convolution of the image with the signal as its kernel, both in blocks, with zeros below the image.
fn convolved(
    gradient: &WeightGradient,
    graph: &mut Graph,
    image: ValueId,
    signal: ValueId,
    group: i64,
    below: i64,
) -> ValueId {
    let each =
        |name: &str, number: fn(&Extent) -> i64| attr_ints(name, &gradient.axes.each_ref().map(number));
    let attributes = [
        each("strides", |axis| axis.dilation),
        each("dilations", |axis| axis.stride),
        attr_ints("pads", &[0, 0, below, 0]),
        attr_int("group", group),
    ];
    nchwc_op(graph, "Conv", &[image, signal], &attributes)
}

/// Length of what the windows of a kernel touch.
fn reach(axis: &Extent, kernel: i64) -> i64 {
    (axis.output - 1) * axis.stride + (kernel - 1) * axis.dilation + 1
}

/// How many samples are missing to whole blocks: a list of one integer.
fn missing(graph: &mut Graph, value: ValueId, lanes: i64) -> ValueId {
    let samples = graph.op("Shape", &[value], &[attr_int("start", 0), attr_int("end", 1)]);
    let less = graph.op("Neg", &[samples], &[]);
    let lanes = graph.ints(&[lanes]);
    graph.op("Mod", &[less, lanes], &[])
}

/// A value with zeros above, left of, below and right of each image, and so many samples of zeros behind the
/// last.
fn filled(
    graph: &mut Graph,
    value: ValueId,
    samples: ValueId,
    [above, left, below, right]: [i64; 4],
) -> ValueId {
    let (front, behind) = (graph.ints(&[0, 0, above, left]), graph.ints(&[0, below, right]));
    let pads = graph.op("Concat", &[front, samples, behind], &[attr_int("axis", 0)]);
    graph.op("Pad", &[value, pads], &[])
}

/// The images of a batch, with zeros around each, in blocks of channels: `[blocks, samples, size of a
/// block]`.
fn stack_images(
    graph: &mut Graph,
    value: ValueId,
    [above, left, below, right]: [i64; 4],
    blocks: i64,
    size: i64,
) -> ValueId {
    let pads = graph.ints(&[0, 0, above, left, 0, 0, below, right]);
    let padded = graph.op("Pad", &[value, pads], &[]);
    let padded = in_blocks(graph, padded);
    let padded = graph.reshape(padded, &[-1, blocks, size]);
    graph.transpose(padded, &[1, 0, 2])
}
