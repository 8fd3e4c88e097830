//! The default search: skips the meeting times that cannot be better.
//!
//! A window that ends at time `U` is best when every worker takes its latest point ≤ `U`; its span is then
//! the largest age `U − latest point` of any worker. So only `U` has to be searched, and it can skip ahead:
//! with a best span `d` in hand, a worker whose age is `d` or more keeps every window from improving until
//! its next point, so `U` goes there at once. Two observations save most of the work of the published form:
//!
//! * A worker whose gaps are all ≤ `d` is never older than `d` while its points last. It is left out until
//!   `d` falls below its longest gap. Workers enter once, slowest first.
//! * Points are not stored or sorted. Each worker shows one point to a tournament tree; the next one is
//!   extrapolated from [`Row`](super::Row) when it is needed, and points that cannot matter are jumped over
//!   by one division.
//!
//! Exact. Time O(n log n + V log n), where V ≤ nR points are visited: those of the workers whose gap exceeds
//! the answer. Memory O(n).

use super::{
    Points,
    tournament::{Head, Tournament},
};

/// The search at one candidate meeting time.
pub(super) struct SkippingSearch<'a, P> {
    rows: &'a [P],
    /// The candidate. Moves forward only, and every row has a point at or before it.
    pub(super) sync_at_us: u64,
    /// When the first row runs out of points; from then on its gap only grows.
    run_out_us: u64,
    /// A point of every row that can limit the span: not later than the candidate, perhaps outdated.
    heads: Tournament,
    /// (longest gap, row) of the rows that cannot limit the span yet, longest last.
    idle: Vec<(u64, u32)>,
}

impl<'a, P: Points> SkippingSearch<'a, P> {
    /// At the first time by which every row has a point. `None` if there is no row, or one without points, or
    /// one whose points are not ascending.
    pub(super) fn new(rows: &'a [P]) -> Option<Self> {
        let all = 0..u32::try_from(rows.len()).ok()?;
        let gap = |(i, row): (u32, &P)| Some((row.longest_gap()?, i));
        let mut idle = all.zip(rows).map(gap).collect::<Option<Vec<_>>>()?;
        idle.sort_unstable();
        let (_, slowest) = idle.pop()?;
        let sync_at_us = rows.iter().map(|row| row.at(0)).max()?;
        let run_out_us = rows.iter().map(|row| row.at(row.count() - 1)).min()?;
        let mut search = Self { rows, sync_at_us, run_out_us, heads: Tournament::new(rows.len()), idle };
        search.heads.set(search.newest(slowest));
        Some(search)
    }

    /// The latest point of `row` that is not later than the candidate.
    fn newest(&self, row: u32) -> Head {
        let points = &self.rows[row as usize];
        let index = points.latest(self.sync_at_us).unwrap_or(0);
        Head::new(points.at(index), row, index)
    }

    /// The span of the best window that ends at the candidate. Lets idle rows in until none could widen it.
    pub(super) fn narrowest_here(&mut self) -> u64 {
        loop {
            let head = self.heads.earliest();
            let newest = self.newest(head.row());
            if newest.time_us != head.time_us {
                self.heads.set(newest);
                continue;
            }
            let span_us = self.sync_at_us - head.time_us.min(self.run_out_us);
            match self.idle.pop_if(|(gap, _)| *gap > span_us) {
                Some((_, row)) => self.heads.set(self.newest(row)),
                None => return span_us,
            }
        }
    }

    /// Moves the candidate to the next time at which no row that was let in is older than `limit_us`; false
    /// if there is none. Every window that ends before that time is wider than `limit_us`.
    pub(super) fn skip_to_next(&mut self, limit_us: u64) -> bool {
        while self.sync_at_us.saturating_sub(self.run_out_us) <= limit_us {
            let head = self.heads.earliest();
            if self.sync_at_us - head.time_us <= limit_us {
                return true;
            }
            let points = &self.rows[head.row() as usize];
            let too_old = |next: Head| self.sync_at_us.saturating_sub(next.time_us) > limit_us;
            let after =
                |index: u32| (index < points.count()).then(|| Head::new(points.at(index), head.row(), index));
            let mut next = after(head.index() + 1);
            // Rows with short intervals may be many points behind.
            if next.is_some_and(too_old) {
                let newest = self.newest(head.row());
                next = if too_old(newest) { after(newest.index() + 1) } else { Some(newest) };
            }
            let Some(next) = next else { return false };
            self.sync_at_us = self.sync_at_us.max(next.time_us);
            self.heads.set(next);
        }
        false
    }
}
