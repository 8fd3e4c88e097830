//! ZipLine as published: a set that slides along the timeline.
//!
//! Source: Zhao et al., ElasticBSP, ICDM 2019, arXiv:2001.01347, section on ZipLine. Every addition scans the
//! set for the older point of the same worker, so the time is O(Rn²); memory O(Rn) for the timeline, 16 bytes
//! per point.

use std::collections::VecDeque;

use super::{
    Points, Window,
    timeline::{Event, timeline},
};

/// Phase I fills the set until it has a point of every worker; phase II takes out the earliest point and
/// fills again. Exact; the earliest of equal windows wins. The iteration of a worker is the newest that was
/// met by then.
pub(super) fn zipline<P: Points>(rows: &[P]) -> Option<Window> {
    let mut omega = timeline(rows)?.into_iter();
    let mut chosen = Chosen::new(rows.len());
    loop {
        while !chosen.is_complete() {
            // The paper's pseudo-code does not say what happens here: without the last worker there is no
            // window.
            let Some(event) = omega.next() else { return chosen.best };
            if let Some(older) = chosen.points.iter().position(|point| point.row == event.row) {
                chosen.points.remove(older);
            }
            chosen.points.push_back(event);
        }
        chosen.consider();
        chosen.points.pop_front();
    }
}

/// The set Z of the papers: at most one point per worker, in the order of the timeline; and the best one so
/// far, Z*.
pub(super) struct Chosen {
    pub(super) points: VecDeque<Event>,
    pub(super) best: Option<Window>,
    workers: usize,
}

impl Chosen {
    pub(super) fn new(workers: usize) -> Self {
        Self { points: VecDeque::with_capacity(workers + 1), best: None, workers }
    }

    /// Whether every worker has a point in it.
    pub(super) fn is_complete(&self) -> bool {
        self.points.len() == self.workers
    }

    /// Keeps the set if it is narrower than the best so far. O(1), or O(n) if it is.
    pub(super) fn consider(&mut self) {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else { return };
        let span_us = last.time_us - first.time_us;
        if self.best.as_ref().is_none_or(|best| span_us < best.span_us) {
            let mut index = vec![0; self.workers];
            self.points.iter().for_each(|point| index[point.row as usize] = point.index);
            self.best = Some(Window { span_us, sync_at_us: last.time_us, index });
        }
    }
}
