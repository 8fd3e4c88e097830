//! y = x resized along some axes. Each axis is a matrix of weights, so dx is dy times each of them,
//! transposed; where each element was repeated a whole number of times, a sum of the repetitions.
//!
//! The weights are known when the graph is written (see `interpolation`), except where an element is chosen
//! by rounding a position that lies between two: then the operator itself says in the graph which one it
//! chooses.

use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, attr_ints};

use super::interpolation::Resized;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum;

/// Most numbers in the matrix of weights of an axis.
const MOST_WEIGHTS: usize = 1 << 24;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let mut sizes = n.dims(n.output())?.to_vec();
    let mut dx = dy.to_owned();
    for Matrix { axis, input, output, weights } in matrices(n)?.into_iter().rev() {
        let times = output.checked_div(input).unwrap_or(0);
        dx = match weights {
            Weights::Known(weights) if repeats(&weights, input, times) => {
                shrunk(n, &dx, &sizes, axis, input, times)?
            }
            weights => {
                let weights = weights.written(n, input, output);
                product(n, &dx, axis, &sizes, &weights)
            }
        };
        sizes[axis] = Dim::Fixed(input);
    }
    Ok(vec![Some(dx)])
}

/// The node itself, as products.
pub(super) fn forward(n: &mut NodeGrad<'_>) -> Result<String, AutodiffError> {
    let sizes = n.dims(n.input(0))?;
    let mut y = n.input(0).to_owned();
    for Matrix { axis, input, output, weights } in matrices(n)? {
        let weights = weights.written(n, input, output);
        let transposed = n.emitter.op("Transpose", &[&weights], &[attr_ints("perm", &[1, 0])]);
        y = product(n, &y, axis, sizes, &transposed);
    }
    Ok(y)
}

/// What happens along one axis: row o of the weights, `[output, input]`, says what output o is made of.
struct Matrix {
    axis: usize,
    input: usize,
    output: usize,
    weights: Weights,
}

enum Weights {
    Known(Vec<f32>),
    /// One element for each output, by a rounding of which only ONNX Runtime is sure; the size is given by
    /// this scale, or itself.
    Chosen {
        by_scale: Option<f32>,
    },
}

impl Weights {
    /// As a value `[output, input]` of the graph.
    fn written(self, n: &mut NodeGrad<'_>, input: usize, output: usize) -> String {
        match self {
            Self::Known(weights) => n.tensor(&[output, input], &weights),
            Self::Chosen { by_scale } => chosen(n, input, output, by_scale),
        }
    }
}

/// One for each axis that changes, in ascending order.
fn matrices(n: &NodeGrad<'_>) -> Result<Vec<Matrix>, AutodiffError> {
    let (from, to) = (n.dims(n.input(0))?, n.dims(n.output())?);
    let scales = scales(n, from.len())?;
    let mut changed: Vec<usize> = (0..from.len().min(to.len())).collect();
    changed.retain(|&axis| match &scales {
        Some(scales) => scales[axis] != 1.0,
        // A node that resizes to sizes states all of them; those of batch and channels are the old ones where
        // nobody knows them.
        None => {
            let is_open = from[axis].fixed().is_none() && to[axis].fixed().is_none();
            !(from[axis].same(&to[axis]) || (is_open && axis < 2))
        }
    });
    // ONNX Runtime copies then, whatever the scales are.
    if changed.iter().all(|&axis| from[axis].same(&to[axis])) {
        return Ok(Vec::new());
    }
    let mut matrices = Vec::new();
    for axis in changed {
        let (from, to) = (&from[axis], &to[axis]);
        if axis == 0 && from.fixed().is_none() {
            return Err(n.refuse("it makes another number of samples of those of the batch".to_owned()));
        }
        let (input, output) = (n.fixed(n.input(0), from)?, n.fixed(n.output(), to)?);
        let (input, output) = (usize::try_from(input).unwrap_or(0), usize::try_from(output).unwrap_or(0));
        let scale = scales.as_ref().map_or(output as f32 / input as f32, |scales| scales[axis]);
        if input == 0 || output.saturating_mul(input) > MOST_WEIGHTS {
            return Err(n.refuse(format!("it resizes {input} elements to {output}")));
        }
        let resized = resized(n, input, output, scale);
        let by_scale = scales.is_some().then_some(scale);
        let weights = match resized.is_unsure() {
            // In proportion to other axes a size is rounded that a scale cuts off.
            true if by_scale.is_some_and(|scale| (input as f32 * scale) as usize != output) => {
                return Err(
                    n.refuse(format!("it resizes {input} elements to {output} by a scale of {scale}"))
                );
            }
            true => Weights::Chosen { by_scale },
            false => Weights::Known(resized.weights().ok_or_else(|| {
                let (mode, coordinates) = (resized.mode, resized.coordinates);
                n.refuse(format!("mode {mode} with coordinates {coordinates}"))
            })?),
        };
        matrices.push(Matrix { axis, input, output, weights });
    }
    Ok(matrices)
}

fn resized<'a>(n: &NodeGrad<'a>, input: usize, output: usize, scale: f32) -> Resized<'a> {
    Resized {
        input,
        output,
        scale,
        mode: n.node.string("mode", "nearest"),
        coordinates: n.node.string("coordinate_transformation_mode", "half_pixel"),
        nearest: n.node.string("nearest_mode", "round_prefer_floor"),
        cubic_coefficient: n.node.float("cubic_coeff_a", -0.75),
        exclude_outside: n.node.int("exclude_outside", 0) != 0,
        antialias: n.node.int("antialias", 0) != 0,
    }
}

/// The scale of every axis, if the node gives scales, or sizes within which the image keeps its proportions.
fn scales(n: &NodeGrad<'_>, rank: usize) -> Result<Option<Vec<f32>>, AutodiffError> {
    let axes = match n.node.ints("axes").filter(|axes| !axes.is_empty()) {
        Some(axes) => axes.iter().map(|axis| n.axis(*axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect::<Vec<usize>>(),
    };
    let given = match n.input(3) {
        "" if n.input(2).is_empty() => return Ok(None),
        "" => {
            let given = n.emitter.known(n.input(2)).and_then(|tensor| tensor.to_f32().ok());
            given.ok_or_else(|| n.refuse("its scales are not constant".to_owned()))?
        }
        sizes => match common_scale(n, sizes, &axes)? {
            Some(scale) => vec![scale; axes.len()],
            None => return Ok(None),
        },
    };
    let mut scales = vec![1.0; rank];
    axes.iter().zip(given).for_each(|(axis, scale)| scales[*axis] = scale);
    Ok(Some(scales))
}

/// The one scale of all axes where the node keeps the proportions of the image.
fn common_scale(n: &NodeGrad<'_>, sizes: &str, axes: &[usize]) -> Result<Option<f32>, AutodiffError> {
    let choose = match n.node.string("keep_aspect_ratio_policy", "stretch") {
        "not_larger" => f32::min,
        "not_smaller" => f32::max,
        _ => return Ok(None),
    };
    let sizes = n.known_ints(sizes).filter(|sizes| sizes.len() == axes.len());
    let sizes = sizes.ok_or_else(|| n.refuse("its sizes are not constant".to_owned()))?;
    let dims = n.dims(n.input(0))?;
    let mut common = None;
    for (axis, size) in axes.iter().zip(sizes) {
        let scale = size as f32 / n.fixed(n.input(0), &dims[*axis])? as f32;
        common = Some(common.map_or(scale, |other| choose(other, scale)));
    }
    Ok(common)
}

/// Whether output o is input o / times.
fn repeats(weights: &[f32], input: usize, times: usize) -> bool {
    let copies = |(output, row): (usize, &[f32])| {
        row.iter()
            .enumerate()
            .all(|(at, weight)| *weight == f32::from(u8::from(times > 0 && at == output / times)))
    };
    weights.len() == input * input * times && weights.chunks(input.max(1)).enumerate().all(copies)
}

/// Sums `times` neighbors along an axis of `value`, which has shape `sizes`.
fn shrunk(
    n: &mut NodeGrad<'_>,
    value: &str,
    sizes: &[Dim],
    axis: usize,
    input: usize,
    times: usize,
) -> Result<String, AutodiffError> {
    let behind: Result<Vec<i64>, _> = sizes[axis + 1..].iter().map(|dim| n.fixed(n.output(), dim)).collect();
    let shape = [vec![0; axis], vec![input as i64, times as i64], behind?].concat();
    let parted = n.reshaped(value, &shape);
    Ok(sum(n.emitter, &parted, &[axis as i64 + 1]))
}

/// The weights `[output, input]` of an axis along which elements are chosen: the node itself says which, of
/// the numbers of all elements. They are integers, of which it makes no others.
fn chosen(n: &mut NodeGrad<'_>, input: usize, output: usize, by_scale: Option<f32>) -> String {
    let numbers: Vec<i64> = (0..).take(input).collect();
    let numbers = n.emitter.constant(TensorProto::from_i64("", &[1, 1, input], &numbers));
    // Neither scaled nor cast to another float: 16 bits and the check in 64 write floats otherwise.
    let numbers = n.emitter.cast(&numbers, ElementType::I32);
    let ways = ["mode", "coordinate_transformation_mode", "nearest_mode"];
    let attributes = n.node.attribute.iter().filter(|attribute| ways.contains(&attribute.name.as_str()));
    let attributes: Vec<AttributeProto> = attributes.cloned().collect();
    let found = match by_scale {
        Some(scale) => {
            let scales = n.emitter.constant(TensorProto::from_f32("", &[3], &[1.0, 1.0, scale]));
            n.emitter.op("Resize", &[&numbers, "", &scales], &attributes)
        }
        None => {
            let sizes = n.emitter.ints(&[1, 1, output as i64]);
            n.emitter.op("Resize", &[&numbers, "", "", &sizes], &attributes)
        }
    };
    let found = n.reshaped(&found, &[output as i64, 1]);
    let numbers = n.reshaped(&numbers, &[1, input as i64]);
    let same = n.emitter.op("Equal", &[&found, &numbers], &[]);
    n.mask(&same)
}

/// Multiplies one axis of `value`, which has as many axes and the first of `sizes`, by the matrix `weights`,
/// whose first axis it is.
fn product(n: &mut NodeGrad<'_>, value: &str, axis: usize, sizes: &[Dim], weights: &str) -> String {
    let rank = sizes.len();
    if axis + 2 == rank {
        let turned = n.emitter.op("Transpose", &[weights], &[attr_ints("perm", &[1, 0])]);
        if sizes.first().is_none_or(|dim| dim.fixed().is_some() || dim.same(&"batch".into())) {
            return n.emitter.op("MatMul", &[&turned, value], &[]);
        }
        // ONNX Runtime refuses to repeat the weights for no sample, which a selection may leave: there is one
        // of zeros more.
        let mut pads = vec![0; 2 * rank];
        pads[rank] = 1;
        let [pads, start, end] = [pads, vec![0], vec![-1]].map(|list| n.emitter.ints(&list));
        let more = n.call("Pad", &[value, &pads]);
        let result = n.call("MatMul", &[&turned, &more]);
        return n.call("Slice", &[&result, &start, &end]);
    }
    let mut perm: Vec<i64> = (0..).take(rank).collect();
    perm.swap(axis, rank - 1);
    let turn = |n: &mut NodeGrad<'_>, value: &str| match axis + 1 == rank {
        true => value.to_owned(),
        false => n.emitter.op("Transpose", &[value], &[attr_ints("perm", &perm)]),
    };
    let turned = turn(n, value);
    let result = n.emitter.op("MatMul", &[&turned, weights], &[]);
    turn(n, &result)
}
