//! LayerNormalization and RMSNormalization: y = xhat * scale + bias, normalized over the last axes.
//!
//! Mean and 1 / deviation are outputs that LayerNormalization can return, in float32 whatever x is;
//! RMSNormalization has none and takes no mean away. dscale = sum(dy * xhat), dbias = sum(dy). Source: Zhang
//! and Sennrich, Root mean square layer normalization, arXiv:1910.07467, for the second.

use syncline_onnx::ElementType;

use super::normalized::Group;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::unbroadcast;

pub(super) fn layer(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let x = n.input(0);
    let group = group(n)?;
    let [mean, r] = [1, 2].map(|index| {
        let statistic = n.emitter.optional_output(n.output(), index);
        if n.element() == ElementType::F32 { statistic } else { n.emitter.cast(&statistic, n.element()) }
    });
    let centered = n.emitter.op("Sub", &[x, &mean], &[]);
    let xhat = n.emitter.op("Mul", &[&centered, &r], &[]);
    gradients(n, dy, &group, &xhat, &r, true)
}

pub(super) fn rms(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let x = n.input(0);
    let group = group(n)?;
    let r = group.inverse_size(n, x, n.node.float("epsilon", 1e-5));
    let xhat = n.emitter.op("Mul", &[x, &r], &[]);
    gradients(n, dy, &group, &xhat, &r, false)
}

fn group(n: &mut NodeGrad<'_>) -> Result<Group, AutodiffError> {
    let x = n.input(0);
    let (rank, axis) = (n.dims(x)?.len() as i64, n.node.int("axis", -1));
    let first = if axis < 0 { axis + rank } else { axis };
    let first = usize::try_from(first).ok().filter(|first| (*first as i64) < rank);
    let first = first.ok_or_else(|| n.refuse(format!("axis {axis} is outside of {rank} axes")))?;
    Group::behind(n, x, first)
}

fn gradients(
    n: &mut NodeGrad<'_>,
    dy: &str,
    group: &Group,
    xhat: &str,
    r: &str,
    centered: bool,
) -> Result<InputGrads, AutodiffError> {
    let (x, scale) = (n.input(0), n.input(1));
    let dx = n.needs(0).then(|| {
        let g = n.emitter.op("Mul", &[dy, scale], &[]);
        group.backward(n, &g, xhat, r, centered)
    });
    let dscale = if n.needs(1) {
        let product = n.emitter.op("Mul", &[dy, xhat], &[]);
        let (from, to) = (n.dims(x)?, n.dims(scale)?);
        Some(unbroadcast(n.emitter, &product, from, scale, to))
    } else {
        None
    };
    let dbias = if n.needs(2) { Some(n.summed_for(dy, 2)?) } else { None };
    Ok(vec![dx, dscale, dbias])
}
