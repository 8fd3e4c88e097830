//! Reading by index: dx = zeros with dy added where each element was read. Indices may repeat and be
//! negative.
//!
//! | operator | reads | dx |
//! |---|---|---|
//! | Gather, one constant index | a slice of size one | dy with zeros around it |
//! | Gather | slices along an axis | rows scattered into zeros, the axis in front |
//! | GatherElements | elements along an axis | ScatterElements |
//! | GatherND | slices by leading coordinates | ScatterND; with batch axes see `positions` |

use super::lengths::{AxisRange, Length, padded, transposed};
use super::positions::{scatter_add, scatter_add_along, scattered, wide};
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn gather(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let (x, indices) = (n.input(0), n.input(1));
    let (rank, index_rank) = (n.dims(x)?.len(), n.dims(indices)?.len());
    let axis = n.axis(n.node.int("axis", 0), rank)?;
    if let Some([index]) = n.known_ints(indices).as_deref() {
        return one_slice(n, dy, axis, *index);
    }
    // dy has the axes of x, with those of the indices in place of `axis`: those go to the front.
    let to_front: Vec<i64> = (axis..axis + index_rank)
        .chain(0..axis)
        .chain(axis + index_rank..rank - 1 + index_rank)
        .map(|at| at as i64)
        .collect();
    let updates = transposed(n, dy, &to_front);
    let order: Vec<usize> = [axis].into_iter().chain(0..axis).chain(axis + 1..rank).collect();
    let sizes: Vec<Length> = order.iter().map(|&axis| Length::of(n, x, axis)).collect();
    let shape = Length::lists(n, &sizes);
    let zeros = n.zeros(&shape);
    let indices = wide(n, indices);
    let last = n.emitter.ints(&[-1]);
    let rows = n.call("Unsqueeze", &[&indices, &last]);
    let sums = scatter_add(n, &zeros, &rows, &updates);
    let mut back = vec![0; rank];
    (0..).zip(order).for_each(|(at, axis)| back[axis] = at);
    Ok(vec![Some(transposed(n, &sums, &back))])
}

fn one_slice(n: &mut NodeGrad<'_>, dy: &str, axis: usize, index: i64) -> Result<InputGrads, AutodiffError> {
    let (x, indices) = (n.input(0), n.input(1));
    let (rank, index_rank) = (n.dims(x)?.len(), n.dims(indices)?.len());
    let part = match index_rank {
        1 => dy.to_owned(),
        0 => {
            let at = n.emitter.ints(&[axis as i64]);
            n.call("Unsqueeze", &[dy, &at])
        }
        _ => {
            let extra: Vec<i64> = (axis as i64 + 1..).take(index_rank - 1).collect();
            let extra = n.emitter.ints(&extra);
            n.call("Squeeze", &[dy, &extra])
        }
    };
    let mut begin = Length::Known(index);
    if index < 0 {
        begin = Length::of(n, x, axis).plus(n, &begin);
    }
    Ok(vec![Some(padded(n, &part, x, rank, &[AxisRange { axis, begin, size: Length::Known(1) }]))])
}

pub(super) fn elements(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let zeros = n.zeros_like(n.input(0));
    Ok(vec![Some(scatter_add_along(n, &zeros, n.input(1), dy, n.node.int("axis", 0)))])
}

pub(super) fn nd(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if n.node.int("batch_dims", 0) != 0 {
        return Ok(vec![Some(scattered(n, dy, &n.node.attribute))]);
    }
    let zeros = n.zeros_like(n.input(0));
    let indices = wide(n, n.input(1));
    Ok(vec![Some(scatter_add(n, &zeros, &indices, dy))])
}
