//! Undoing numpy broadcasting: an input that was repeated receives the sum over its repetitions.

use syncline_onnx::{Dim, attr_int};

use crate::emitter::Emitter;

/// Sums `grad`, which has shape `from`, down to the shape `to` of `value`.
///
/// Axes that are certainly equal are left alone, axes that were certainly repeated are summed, all in one
/// `ReduceSum`. Where only the run can tell (a symbol against another symbol), the axes are found by the
/// graph itself.
pub(super) fn unbroadcast(
    emitter: &mut Emitter,
    grad: &str,
    from: &[Dim],
    value: &str,
    to: &[Dim],
) -> String {
    let leading = from.len().saturating_sub(to.len());
    let fates: Vec<AxisReduction> =
        to.iter().zip(&from[leading..]).map(|(to, from)| axis_reduction(to, from)).collect();
    let repeated: Vec<i64> = (0..)
        .zip(&fates)
        .filter(|(_, axis_reduction)| **axis_reduction == AxisReduction::Sum)
        .map(|(axis, _)| axis)
        .collect();
    if fates.contains(&AxisReduction::Unknown) {
        let reduced = sum(emitter, grad, &(0..leading as i64).collect::<Vec<_>>());
        return sum_where_one(emitter, &reduced, value, to.len());
    }
    if leading == 0 {
        return sum_keeping(emitter, grad, &repeated);
    }
    let axes: Vec<i64> =
        (0..leading as i64).chain(repeated.iter().map(|axis| axis + leading as i64)).collect();
    let reduced = sum(emitter, grad, &axes);
    if repeated.is_empty() {
        return reduced;
    }
    let axes = emitter.ints(&repeated);
    emitter.op("Unsqueeze", &[&reduced, &axes], &[])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AxisReduction {
    Keep,
    Sum,
    Unknown,
}

fn axis_reduction(to: &Dim, from: &Dim) -> AxisReduction {
    match (to, from) {
        (to, from) if to.same(from) => AxisReduction::Keep,
        (Dim::Fixed(1), _) => AxisReduction::Sum,
        // A size other than one is the size of the result.
        (Dim::Fixed(_), _) => AxisReduction::Keep,
        _ => AxisReduction::Unknown,
    }
}

/// Sums over axes and removes them.
pub(super) fn sum(emitter: &mut Emitter, value: &str, axes: &[i64]) -> String {
    reduce(emitter, value, axes, 0)
}

/// Sums over axes and keeps them with size one.
pub(super) fn sum_keeping(emitter: &mut Emitter, value: &str, axes: &[i64]) -> String {
    reduce(emitter, value, axes, 1)
}

fn reduce(emitter: &mut Emitter, value: &str, axes: &[i64], keep: i64) -> String {
    if axes.is_empty() {
        return value.to_owned();
    }
    let axes = emitter.ints(axes);
    emitter.op("ReduceSum", &[value, &axes], &[attr_int("keepdims", keep)])
}

/// Sums over every axis on which `like` has size one, found at run time. Both have this rank.
fn sum_where_one(emitter: &mut Emitter, value: &str, like: &str, rank: usize) -> String {
    let (one, zero) = (emitter.int(1), emitter.ints(&[0]));
    let shape = emitter.op("Shape", &[like], &[]);
    let repeated = emitter.op("Equal", &[&shape, &one], &[]);
    let table = emitter.op("NonZero", &[&repeated], &[]);
    let axes = emitter.op("Squeeze", &[&table, &zero], &[]);
    let attributes = [attr_int("keepdims", 1), attr_int("noop_with_empty_axes", 1)];
    let total = emitter.op("ReduceSum", &[value, &axes], &attributes);
    // Shape inference loses the rank where it does not know the axes, and some operators do not load without
    // one.
    let same = emitter.ints(&vec![0; rank]);
    emitter.op("Reshape", &[&total, &same], &[])
}
