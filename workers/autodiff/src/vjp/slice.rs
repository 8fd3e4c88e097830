//! y = every step-th element of x from start to end, along some axes: dx = dy where it came from, else 0.
//!
//! Where the steps are 1 and the starts are constants, that is dy with zeros around it. Ends may be anything:
//! the size of y tells them. Other steps, backward ones too, go the way of `positions`.

use super::lengths::{AxisRange, Length, padded};
use super::positions::scattered;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let dx = match starts(n)? {
        Some(starts) => {
            let (x, rank) = (n.input(0), n.dims(n.input(0))?.len());
            let ranges: Vec<AxisRange> = starts
                .into_iter()
                .map(|(axis, start)| {
                    let all = Length::of(n, x, axis);
                    let begin = Length::Known(start);
                    let begin = if start < 0 { all.plus(n, &begin) } else { begin };
                    let begin = begin.at_least(n, &Length::Known(0)).at_most(n, &all);
                    AxisRange { axis, begin, size: Length::of(n, n.output(), axis) }
                })
                .collect();
            padded(n, dy, x, rank, &ranges)
        }
        None => scattered(n, dy, &[]),
    };
    Ok(vec![Some(dx)])
}

/// Axes with their starts, if these are constants and every step is 1.
fn starts(n: &NodeGrad<'_>) -> Result<Option<Vec<(usize, i64)>>, AutodiffError> {
    let rank = n.dims(n.input(0))?.len();
    let Some(starts) = n.known_ints(n.input(1)) else {
        return Ok(None);
    };
    let axes = match n.input(3) {
        "" => Some((0..starts.len() as i64).collect()),
        axes => n.known_ints(axes),
    };
    let forward = match n.input(4) {
        "" => true,
        steps => n.known_ints(steps).is_some_and(|steps| steps.iter().all(|step| *step == 1)),
    };
    let Some(axes) = axes.filter(|_| forward) else {
        return Ok(None);
    };
    axes.into_iter()
        .zip(starts)
        .map(|(axis, start)| Ok((n.axis(axis, rank)?, start)))
        .collect::<Result<_, _>>()
        .map(Some)
}
