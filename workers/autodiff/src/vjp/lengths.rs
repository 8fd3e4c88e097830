//! Sizes and offsets along an axis: numbers where they are known, else integers that the graph computes when
//! it runs.

use syncline_onnx::{attr_int, attr_ints};

use super::NodeGrad;

/// A whole number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Length {
    Known(i64),
    /// A value that is a list of one int64.
    Run(String),
}

impl Length {
    /// Size of a value along an axis.
    pub(super) fn of(n: &mut NodeGrad<'_>, value: &str, axis: usize) -> Self {
        let fixed = n.types.get(value).and_then(|ty| ty.dims.get(axis)?.fixed());
        match fixed.and_then(|size| i64::try_from(size).ok()) {
            Some(size) => Self::Known(size),
            None => {
                let (start, end) = (attr_int("start", axis as i64), attr_int("end", axis as i64 + 1));
                Self::Run(n.emitter.op("Shape", &[value], &[start, end]))
            }
        }
    }

    pub(super) fn plus(&self, n: &mut NodeGrad<'_>, other: &Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.saturating_add(*b)),
            (Self::Known(0), other) => other.clone(),
            (one, Self::Known(0)) => one.clone(),
            _ => self.computed(n, "Add", other),
        }
    }

    pub(super) fn minus(&self, n: &mut NodeGrad<'_>, other: &Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.saturating_sub(*b)),
            (one, Self::Known(0)) => one.clone(),
            _ => self.computed(n, "Sub", other),
        }
    }

    pub(super) fn at_least(&self, n: &mut NodeGrad<'_>, other: &Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(*a.max(b)),
            _ => self.computed(n, "Max", other),
        }
    }

    pub(super) fn at_most(&self, n: &mut NodeGrad<'_>, other: &Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(*a.min(b)),
            // A size is never negative.
            (Self::Known(0), Self::Run(_)) => Self::Known(0),
            _ => self.computed(n, "Min", other),
        }
    }

    /// The number as a list of one.
    pub(super) fn list(&self, n: &mut NodeGrad<'_>) -> String {
        match self {
            Self::Known(number) => n.emitter.ints(&[*number]),
            Self::Run(value) => value.clone(),
        }
    }

    /// Several numbers as one list.
    pub(super) fn lists(n: &mut NodeGrad<'_>, lengths: &[Self]) -> String {
        let known: Option<Vec<i64>> = lengths.iter().map(Self::known).collect();
        if let Some(numbers) = known {
            return n.emitter.ints(&numbers);
        }
        let lists: Vec<String> = lengths.iter().map(|length| length.list(n)).collect();
        let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
        n.emitter.op("Concat", &lists, &[attr_int("axis", 0)])
    }

    fn known(&self) -> Option<i64> {
        match self {
            Self::Known(number) => Some(*number),
            Self::Run(_) => None,
        }
    }

    fn computed(&self, n: &mut NodeGrad<'_>, op: &str, other: &Self) -> Self {
        let (a, b) = (self.list(n), other.list(n));
        Self::Run(n.call(op, &[&a, &b]))
    }
}

/// Where a part lies in a whole: from `begin` on, along `axis`.
pub(super) struct AxisRange {
    pub(super) axis: usize,
    pub(super) begin: Length,
    pub(super) size: Length,
}

/// Zeros of the shape of `whole`, with `part` at these ranges; along other axes the part is as long as the
/// whole.
///
/// This is the gradient of everything that cuts a block out of a value. One `Pad`.
pub(super) fn padded(
    n: &mut NodeGrad<'_>,
    part: &str,
    whole: &str,
    rank: usize,
    ranges: &[AxisRange],
) -> String {
    let mut pads = vec![Length::Known(0); 2 * rank];
    for AxisRange { axis, begin, size } in ranges {
        let all = Length::of(n, whole, *axis);
        let rest = all.minus(n, begin);
        pads[*axis] = begin.clone();
        pads[rank + axis] = rest.minus(n, size);
    }
    if pads.iter().all(|pad| *pad == Length::Known(0)) {
        return part.to_owned();
    }
    let pads = Length::lists(n, &pads);
    n.call("Pad", &[part, &pads])
}

/// The part of `whole` from `begin` on, `size` long, along one axis.
pub(super) fn cut(n: &mut NodeGrad<'_>, whole: &str, range: &AxisRange) -> String {
    let end = range.begin.plus(n, &range.size);
    let (starts, ends) = (range.begin.list(n), end.list(n));
    let axes = n.emitter.ints(&[range.axis as i64]);
    n.call("Slice", &[whole, &starts, &ends, &axes])
}

/// `value` with its axes in another order.
pub(super) fn transposed(n: &mut NodeGrad<'_>, value: &str, perm: &[i64]) -> String {
    if (0..).zip(perm).all(|(at, axis)| at == *axis) {
        return value.to_owned();
    }
    n.emitter.op("Transpose", &[value], &[attr_ints("perm", perm)])
}
