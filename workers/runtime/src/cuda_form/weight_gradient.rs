//! The gradient of the weights of a two-dimensional convolution, as one product of matrices.
//!
//! ```text
//! dW[m, c, t] = sum over batch n and positions o of signal[n, m, o] * image[n, c, o * stride + t * dilation - begin]
//! ```
//!
//! What every tap of the kernel reads is laid out as columns: `[channels x taps, positions]` for each image.
//! Then either
//!
//! * images with few positions: signals and columns of all images are put side by side, for one product whose
//!   inner axis runs over the batch as well; or
//! * one product per image, whose results are added up, where this is enough to keep a GPU busy.
//!
//! Measured on an H200, batch 64, ResNet-50's shapes, against a product for some taps at a time: 512 channels
//! of 7 x 7 with 3 x 3 taps 1053 -> 455 us, 256 of 14 x 14 658 -> 547, 64 of 56 x 56 1453 -> 1108, 3 of 224 x
//! 224 with 7 x 7 taps 4276 -> 1647. The textbook form, a convolution with batch and channels exchanged, took
//! up to 17 ms.

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{ElementType, Extent, Graph, ValueId, WeightGradient, attr_int};

/// Positions of an image up to which the images of a batch go into one product: between 196 and 784 both ways
/// are equal.
const FEW_POSITIONS: i64 = 196;
/// Most bytes that the columns of an image may take. A batch of 64 has 4 GiB of them at most, for as long as
/// a product takes.
const MOST_BYTES: i64 = 64 << 20;

/// Writes the product under the name of the node's output, computed in `element`; `None` where what is there
/// is as good.
pub(super) fn write(
    gradient: &WeightGradient,
    element: ElementType,
    graph: &mut Graph,
    node: &NodeProto,
) -> Option<()> {
    let [channels, columns, height, width] = gradient.weights;
    let [rows_axis, columns_axis] = gradient.axes;
    let positions = rows_axis.output.checked_mul(columns_axis.output)?;
    let bytes = [columns, height, width, 4].into_iter().try_fold(positions, i64::checked_mul)?;
    let taps = height * width;
    let few = positions <= FEW_POSITIONS;
    if gradient.group != 1 || !(1..=MOST_BYTES).contains(&bytes) || taps == 1 && !few || channels < 1 {
        return None;
    }
    let value = |name: &String| graph.value(name);
    let (image, signal) = (value(&gradient.image)?, value(&gradient.signal)?);
    let output = value(node.output.first()?)?;
    // In float32: the provider pads no bfloat16.
    let image = cast(graph, image, element, ElementType::F32);
    let image = padded(graph, image, &gradient.axes);
    let image = cast(graph, image, ElementType::F32, element);
    let signal = cast(graph, signal, ElementType::F32, element);
    let all = columns * taps;
    let products = if few {
        let image = graph.transpose(image, &[1, 0, 2, 3]);
        let read = read_by_taps(graph, gradient, image, &[columns, 1, -1]);
        let read = joined(graph, &read, 1);
        let read = graph.reshape(read, &[all, -1]);
        let signal = graph.transpose(signal, &[1, 0, 2, 3]);
        let signal = graph.reshape(signal, &[channels, -1]);
        let product = graph.op("Gemm", &[signal, read], &[attr_int("transB", 1)]);
        cast(graph, product, element, ElementType::F32)
    } else {
        let read = read_by_taps(graph, gradient, image, &[0, columns, 1, positions]);
        let read = joined(graph, &read, 2);
        let read = graph.reshape(read, &[0, all, positions]);
        let read = graph.transpose(read, &[0, 2, 1]);
        let signal = graph.reshape(signal, &[0, channels, positions]);
        let products = graph.op("MatMul", &[signal, read], &[]);
        let products = cast(graph, products, element, ElementType::F32);
        let images = graph.ints(&[0]);
        graph.op("ReduceSum", &[products, images], &[attr_int("keepdims", 0)])
    };
    let shape = graph.ints(&gradient.weights);
    graph.op_as(output, "", "Reshape", &[products, shape], &[]);
    Some(())
}

/// What each tap reads at every position of the padded image, in this shape; its last two axes are height and
/// width.
fn read_by_taps(graph: &mut Graph, gradient: &WeightGradient, image: ValueId, shape: &[i64]) -> Vec<ValueId> {
    let [_, _, height, width] = gradient.weights;
    let axes = gradient.axes;
    let is_whole = |axis: &Extent| (axis.stride, axis.begin, axis.end) == (1, 0, 0);
    let whole = height * width == 1 && axes.iter().all(is_whole);
    let (spatial, steps) = (graph.ints(&[2, 3]), graph.ints(&axes.map(|axis| axis.stride)));
    let taps = (0..height).flat_map(|row| (0..width).map(move |column| [row, column]));
    let read = taps.map(|tap| {
        let seen = if whole {
            image
        } else {
            let starts = [tap[0] * axes[0].dilation, tap[1] * axes[1].dilation];
            let last = |at: usize| starts[at] + (axes[at].output - 1) * axes[at].stride + 1;
            let (starts, ends) = (graph.ints(&starts), graph.ints(&[last(0), last(1)]));
            graph.op("Slice", &[image, starts, ends, spatial, steps], &[])
        };
        graph.reshape(seen, shape)
    });
    read.collect()
}

/// The image with the zeros that windows touch.
fn padded(graph: &mut Graph, image: ValueId, axes: &[Extent; 2]) -> ValueId {
    let [rows, columns] = axes;
    let behind = [rows.end.max(0), columns.end.max(0)];
    if (rows.begin, columns.begin, behind) == (0, 0, [0, 0]) {
        return image;
    }
    let pads = graph.ints(&[0, 0, rows.begin, columns.begin, 0, 0, behind[0], behind[1]]);
    graph.op("Pad", &[image, pads], &[])
}

/// A value in another type; what is cast to 16 bits may have had them before.
fn cast(graph: &mut Graph, value: ValueId, from: ElementType, to: ElementType) -> ValueId {
    match from == to {
        true => value,
        false => graph.op("Cast", &[value], &[attr_int("to", i64::from(to.code()))]),
    }
}

fn joined(graph: &mut Graph, parts: &[ValueId], axis: i64) -> ValueId {
    match parts {
        [one] => *one,
        many => graph.op("Concat", many, &[attr_int("axis", axis)]),
    }
}
