//! GridScan and FullGridScan: everybody meets near a point of one base worker. Quick to say, and not exact.
//!
//! Source: Zhao et al., ElasticBSP, ICDM 2019, arXiv:2001.01347. For each point of the base row the other
//! rows give the point that is nearest to it, found by a scan; the narrowest such choice wins, the earliest
//! of equal ones. The nearest point may lie on the wrong side: for `3 7 | 1 6 | 2 3 | 6 7` the narrowest
//! window is 3 wide, and no base row finds less than 4.
//!
//! Never narrower than the narrowest window, as each choice is a window. Of equally near points the earlier
//! is taken.

use super::{Points, Window};

/// The base is the row that begins first. Time O(R²n), memory O(n).
pub(super) fn grid_scan<P: Points>(rows: &[P]) -> Option<Window> {
    check(rows)?;
    let (base, _) = rows.iter().enumerate().min_by_key(|(_, row)| row.at(0))?;
    around(rows, base)
}

/// Every row is the base once. Time O(R²n²), memory O(n).
pub(super) fn full_grid_scan<P: Points>(rows: &[P]) -> Option<Window> {
    check(rows)?;
    (0..rows.len()).filter_map(|base| around(rows, base)).min_by_key(width_then_end)
}

/// `None` unless every row has points and they ascend.
fn check<P: Points>(rows: &[P]) -> Option<()> {
    rows.iter().try_for_each(|row| row.longest_gap().map(drop))
}

/// The best choice around the points of one row.
fn around<P: Points>(rows: &[P], base: usize) -> Option<Window> {
    let near = |i| {
        let time_us = rows[base].at(i);
        let index: Vec<u32> = rows.iter().map(|row| nearest(row, time_us)).collect();
        let (mut first_us, mut last_us) = (time_us, time_us);
        for (row, &i) in rows.iter().zip(&index) {
            first_us = first_us.min(row.at(i));
            last_us = last_us.max(row.at(i));
        }
        Window { span_us: last_us - first_us, sync_at_us: last_us, index }
    };
    (0..rows[base].count()).map(near).min_by_key(width_then_end)
}

/// Index of the point nearest to `time_us`, the first of equally near ones.
fn nearest<P: Points>(row: &P, time_us: u64) -> u32 {
    (0..row.count()).min_by_key(|&i| row.at(i).abs_diff(time_us)).unwrap_or(0)
}

fn width_then_end(window: &Window) -> (u64, u64) {
    (window.span_us, window.sync_at_us)
}
