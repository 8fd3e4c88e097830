//! Axes as attributes of operators name them.

/// An axis of a value with `rank` of them, counted from the front; those below 0 are counted from the end.
/// `None` if there is no such axis.
pub(crate) fn from_front(axis: i64, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { axis.checked_add_unsigned(rank as u64)? } else { axis };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
}
