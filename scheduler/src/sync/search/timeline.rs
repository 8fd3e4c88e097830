//! All points of all workers in the order of time: the list Ω of the ZipLine papers.

use super::Points;

/// Point `index` of row `row`, which is at `time_us`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) time_us: u64,
    pub(super) row: u32,
    pub(super) index: u32,
}

impl Event {
    /// Its order on the timeline; no two points have the same.
    pub(super) fn order(self) -> (u64, u32, u32) {
        (self.time_us, self.row, self.index)
    }
}

/// All points by time, equal times by row and then by index. `None` if there is no row, or one without
/// points, or one whose points are not ascending. Time O(nR log n), 16 bytes per point.
pub(super) fn timeline<P: Points>(rows: &[P]) -> Option<Vec<Event>> {
    let mut events = Vec::new();
    for (row, points) in (0..u32::try_from(rows.len()).ok()?).zip(rows) {
        points.longest_gap()?;
        events.extend((0..points.count()).map(|index| Event { time_us: points.at(index), row, index }));
    }
    // Stable, and quick on rows that are sorted already.
    events.sort_by_key(|event| event.time_us);
    (!events.is_empty()).then_some(events)
}
