//! A plain merge of the rows with a binary heap: the textbook search for the smallest range that covers all
//! lists.
//!
//! Exact. Time O(nR log n), memory O(n). Kept to compare with.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use super::{Alternative, Points, Window};

/// One point of every worker in the heap; the earliest moves on until its worker has no point left. Of equal
/// windows the earliest wins.
pub(super) fn heap_merge<P: Points>(rows: &[P]) -> Option<Window> {
    let mut heads = BinaryHeap::with_capacity(rows.len());
    let mut sync_at_us = 0;
    for (row, points) in rows.iter().enumerate() {
        points.longest_gap()?;
        heads.push(Reverse((points.at(0), row, 0)));
        sync_at_us = sync_at_us.max(points.at(0));
    }
    let mut best: Option<Alternative> = None;
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((time_us, row, index)) = *head;
        let span_us = sync_at_us - time_us;
        if best.is_none_or(|best| span_us < best.span_us) {
            best = Some(Alternative { span_us, sync_at_us });
        }
        let next = index + 1;
        if next == rows[row].count() {
            PeekMut::pop(head);
            break;
        }
        *head = Reverse((rows[row].at(next), row, next));
        sync_at_us = sync_at_us.max(rows[row].at(next));
    }
    let best = best?;
    Window::ending_at(rows, best.span_us, best.sync_at_us)
}
