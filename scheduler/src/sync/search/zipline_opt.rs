//! ZipLineOpt and ZipLineOptBS: ZipLine that finds the older point of a worker with less work.
//!
//! Source: Zhao et al., ZipLine, Machine Learning 2021, doi:10.1007/s10994-021-06064-w. Both first see
//! whether the older point is the earliest of the set. Opt then scans the set as ZipLine does. OptBS looks
//! for it by binary search, as its time stands in the table of predictions: same worker, previous iteration.
//!
//! As the set is one contiguous ring here, taking a point out of its middle moves up to n/2 others, so the
//! worst case of both is O(Rn²) like ZipLine's, with a small constant; the published O(Rn log n) of OptBS
//! counts the searches only. Memory O(Rn).

use super::{
    Points, Window,
    timeline::{Event, timeline},
    zipline::Chosen,
};

/// With a scan of the set. Finds what [`zipline`](super::zipline::zipline) finds.
pub(super) fn zipline_opt<P: Points>(rows: &[P]) -> Option<Window> {
    slide(rows, |chosen, event| chosen.points.iter().position(|point| point.row == event.row))
}

/// With a binary search in the set. Finds what [`zipline`](super::zipline::zipline) finds.
pub(super) fn zipline_opt_bs<P: Points>(rows: &[P]) -> Option<Window> {
    slide(rows, |chosen, event| {
        let index = event.index.checked_sub(1)?;
        let older = Event { time_us: rows[event.row as usize].at(index), index, ..event };
        chosen.points.binary_search_by_key(&older.order(), |point| point.order()).ok()
    })
}

/// Looks at the set after every point of the timeline.
fn slide<P: Points>(rows: &[P], find: impl Fn(&Chosen, Event) -> Option<usize>) -> Option<Window> {
    let mut chosen = Chosen::new(rows.len());
    for event in timeline(rows)? {
        if chosen.points.front().is_some_and(|earliest| earliest.row == event.row) {
            chosen.points.pop_front();
        } else if let Some(older) = find(&chosen, event) {
            chosen.points.remove(older);
        }
        chosen.points.push_back(event);
        if chosen.is_complete() {
            chosen.consider();
        }
    }
    chosen.best
}
