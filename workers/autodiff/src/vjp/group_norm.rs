//! GroupNormalization and InstanceNormalization: the channels are cut into groups, and each group of each
//! sample is normalized over its channels and all positions; an instance is a group of one channel.
//!
//! y = xhat * scale + bias, per channel, or per group as operator set 18 has it. Source: Wu and He, Group
//! normalization, arXiv:1803.08494; Ulyanov, Vedaldi and Lempitsky, arXiv:1607.08022.

use syncline_onnx::{Dim, attr_int};

use super::normalized::Group;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::sum;

pub(super) fn group(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let groups = n.node.int("num_groups", 1);
    rule(n, dy, groups)
}

pub(super) fn instance(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let groups = channels(n)?;
    rule(n, dy, groups)
}

fn channels(n: &NodeGrad<'_>) -> Result<i64, AutodiffError> {
    let x = n.input(0);
    match n.dims(x)?.get(1) {
        Some(dim) => n.fixed(x, dim),
        None => Err(n.refuse("its input has no channels".to_owned())),
    }
}

fn rule(n: &mut NodeGrad<'_>, dy: &str, groups: i64) -> Result<InputGrads, AutodiffError> {
    let (x, scale) = (n.input(0), n.input(1));
    let channels = channels(n)?;
    let per_group =
        n.dims(scale)?.first().and_then(|dim| dim.fixed()).is_some_and(|size| size as i64 == groups);
    // A selection may be empty, of which no size can be left open.
    let positions: Option<usize> = n.dims(x)?.iter().skip(2).map(Dim::fixed).product();
    let positions = positions.and_then(|positions| i64::try_from(positions).ok()).unwrap_or(-1);
    // [batch, groups, channels of a group, positions]
    let parted = [0, groups, channels / groups.max(1), positions];
    let (x4, dy4) = (n.reshaped(x, &parted), n.reshaped(dy, &parted));
    let scale4 = match per_group {
        true => n.reshaped(scale, &[groups, 1, 1]),
        false => n.reshaped(scale, &[groups, channels / groups.max(1), 1]),
    };
    let shape = n.emitter.op("Shape", &[&x4], &[attr_int("start", 2)]);
    let sizes = n.emitter.cast(&shape, n.element());
    let size = n.emitter.op("ReduceProd", &[&sizes], &[attr_int("keepdims", 0)]);
    let group = Group { axes: vec![2, 3], size };
    let mean = group.mean(n, &x4);
    let centered = n.emitter.op("Sub", &[&x4, &mean], &[]);
    let r = group.inverse_size(n, &centered, n.node.float("epsilon", 1e-5));
    let xhat = n.emitter.op("Mul", &[&centered, &r], &[]);

    let dx = if n.needs(0) {
        let g = n.emitter.op("Mul", &[&dy4, &scale4], &[]);
        let dx = group.backward(n, &g, &xhat, &r, true);
        Some(n.reshape_to_input(&dx, 0)?)
    } else {
        None
    };
    let axes: &[i64] = if per_group { &[0, 2, 3] } else { &[0, 3] };
    let mut affine = vec![None, None];
    if n.needs(1) {
        let product = n.emitter.op("Mul", &[&dy4, &xhat], &[]);
        let total = sum(n.emitter, &product, axes);
        affine[0] = Some(n.reshape_to_input(&total, 1)?);
    }
    if n.needs(2) {
        let total = sum(n.emitter, &dy4, axes);
        affine[1] = Some(n.reshape_to_input(&total, 2)?);
    }
    Ok([vec![dx], affine].concat())
}
