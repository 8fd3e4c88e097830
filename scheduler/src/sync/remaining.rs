//! What is left of a planned superstep when a worker overruns its prediction.

use std::collections::BTreeMap;

use super::{PlanRow, SyncPolicy, WorkerProgress, search::Row};
use crate::ids::Incarnation;

/// Rows to plan from anew: whoever is `late` (and for how long its iteration has run, µs) stops at what is
/// granted to it; whoever has reached its `last` stays there; nobody goes beyond it.
pub fn remaining_rows(
    policy: &dyn SyncPolicy,
    now_us: u64,
    seen: &mut [WorkerProgress],
    late: &BTreeMap<Incarnation, u64>,
    last: impl Fn(Incarnation) -> Option<u64>,
) -> Vec<PlanRow> {
    for s in seen.iter_mut() {
        s.interval_us = s.interval_us.max(late.get(&s.worker).copied().unwrap_or(0));
    }
    let mut rows = policy.rows(now_us, seen);
    for (row, s) in rows.iter_mut().zip(seen.iter()) {
        let last = last(row.worker).unwrap_or(s.granted);
        if s.finished >= last {
            (row.first_seq, row.points) = (last, Row { first_us: s.last_end_us, interval_us: 0, count: 1 });
            continue;
        }
        let left = if late.contains_key(&row.worker) { 1 } else { (last + 1).saturating_sub(row.first_seq) };
        row.points.count = row.points.count.min(u32::try_from(left.max(1)).unwrap_or(u32::MAX));
    }
    rows
}
