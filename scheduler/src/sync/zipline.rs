//! ZipLine: chooses the next moment at which all workers should meet.
//!
//! In: for each worker the predicted end times of its next iterations, in µs on the scheduler's clock. Out: one
//! point per worker such that the span (latest − earliest) is smallest, hence the longest wait is shortest.
//! Among equal spans the earliest meeting wins; each worker goes to its latest point that is not later than the
//! meeting. Pure. Source: Zhao et al., ElasticBSP, ICDM 2019, arXiv:2001.01347; ZipLine, Machine Learning 2021,
//! doi:10.1007/s10994-021-06064-w.
//!
//! # How
//!
//! A window that ends at time `U` is best when every worker takes its latest point ≤ `U`; its span is then the
//! largest age `U − latest point` of any worker. So only `U` has to be searched, and it can leap: with a best
//! span `d` in hand, a worker whose age is `d` or more keeps every window from improving until its next point,
//! so `U` goes there at once. Two observations save most of the work of the published form:
//!
//! * A worker whose gaps are all ≤ `d` is never older than `d` while its points last. It is left out until `d`
//!   falls below its longest gap. Workers enter once, slowest first.
//! * Points are not stored or sorted. Each worker shows one point to a tournament tree; the next one is
//!   extrapolated from [`Row`] when it is needed, and points that cannot matter are jumped over by one division.
//!
//! Exact. Time O(n log n + V log n), where V ≤ nR points are visited: those of the workers whose gap exceeds the
//! answer. Memory O(n). Measured with 1000 workers and R = 150: 1 ms for intervals of 1.0 to 1.5 s as in the paper,
//! 2.7 ms for workers so alike that none can be left out (`benches/zipline.rs`).

use std::hint::select_unpredictable;

use serde::{Deserialize, Serialize};

/// Predicted end points of one worker: `first_us + i · interval_us` for `i` in `0..count`.
///
/// A point beyond `u64::MAX` counts as `u64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The earliest point at which this worker may be told to stop.
    pub first_us: u64,
    /// Predicted time of one iteration. Zero is allowed: all points coincide.
    pub interval_us: u64,
    /// R, the number of predicted points.
    pub count: u32,
}

/// The narrowest window and who stops where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Predicted wait of the worker that waits longest.
    pub span_us: u64,
    /// When the last worker arrives.
    pub sync_at_us: u64,
    /// Per row, the index of the point at which that worker stops.
    pub index: Vec<u32>,
}

/// Ascending (not strictly) time points of one worker: a [`Row`], or any slice of them such as `Vec<u64>`.
pub trait Points {
    /// Number of points.
    fn count(&self) -> u32;
    /// Point `i`, for `i < count()`.
    fn at(&self, i: u32) -> u64;
    /// Index of the latest point ≤ `until_us`; `None` if all are later (or there is none).
    fn latest(&self, until_us: u64) -> Option<u32>;
    /// The longest distance between neighbours, 0 for a single point; `None` if there is no point, or if the
    /// points are not ascending.
    fn longest_gap(&self) -> Option<u64>;
}

impl Points for Row {
    fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, i: u32) -> u64 {
        self.first_us.saturating_add(self.interval_us.saturating_mul(u64::from(i)))
    }

    fn latest(&self, until_us: u64) -> Option<u32> {
        let last = self.count.checked_sub(1)?;
        let ahead = until_us.checked_sub(self.first_us)?;
        // At u64::MAX every point has come, also those that were cut off there.
        let i = if until_us == u64::MAX { None } else { ahead.checked_div(self.interval_us) };
        Some(i.map_or(last, |i| u32::try_from(i).unwrap_or(last).min(last)))
    }

    fn longest_gap(&self) -> Option<u64> {
        (self.count > 0).then_some(self.interval_us)
    }
}

impl<T: AsRef<[u64]>> Points for T {
    fn count(&self) -> u32 {
        u32::try_from(self.as_ref().len()).unwrap_or(u32::MAX)
    }

    fn at(&self, i: u32) -> u64 {
        self.as_ref()[i as usize]
    }

    fn latest(&self, until_us: u64) -> Option<u32> {
        let come = self.as_ref().partition_point(|&e| e <= until_us);
        u32::try_from(come).unwrap_or(u32::MAX).checked_sub(1)
    }

    fn longest_gap(&self) -> Option<u64> {
        let points = self.as_ref();
        let none = (!points.is_empty()).then_some(0);
        points.windows(2).fold(none, |longest, pair| Some(longest?.max(pair[1].checked_sub(pair[0])?)))
    }
}

/// The narrowest window that holds one point of every row; see the [module](self) for ties and cost.
///
/// `None` if there is no row, if a row has no point, or if its points are not ascending.
///
/// ```
/// use syncline_scheduler::sync::zipline::{Row, narrowest_window};
/// let fast = Row { first_us: 10, interval_us: 10, count: 5 };
/// let slow = Row { first_us: 29, interval_us: 29, count: 5 };
/// let window = narrowest_window(&[fast, slow]).unwrap();
/// assert_eq!((window.span_us, window.sync_at_us), (1, 30)); // fast ends its third iteration 1 µs after slow
/// assert_eq!(window.index, [2, 0]);
/// ```
pub fn narrowest_window<P: Points>(rows: &[P]) -> Option<Window> {
    let mut search = Search::new(rows)?;
    let mut span_us = search.settle();
    let mut sync_at_us = search.sync_at_us;
    while span_us > 0 && search.leap(span_us) {
        span_us = search.settle();
        sync_at_us = search.sync_at_us;
    }
    let index = rows.iter().map(|row| row.latest(sync_at_us)).collect::<Option<_>>()?;
    Some(Window { span_us, sync_at_us, index })
}

/// The search at one candidate meeting time.
struct Search<'a, P> {
    rows: &'a [P],
    /// The candidate. Moves forward only, and every row has a point at or before it.
    sync_at_us: u64,
    /// When the first row runs out of points; from then on it grows old without a cure.
    run_out_us: u64,
    /// A point of every row that can limit the span: not later than the candidate, perhaps outdated.
    heads: Tournament,
    /// (longest gap, row) of the rows that cannot limit the span yet, longest last.
    idle: Vec<(u64, usize)>,
}

impl<'a, P: Points> Search<'a, P> {
    fn new(rows: &'a [P]) -> Option<Self> {
        let gap = |(i, row): (usize, &P)| Some((row.longest_gap()?, i));
        let mut idle = rows.iter().enumerate().map(gap).collect::<Option<Vec<_>>>()?;
        idle.sort_unstable();
        let (_, slowest) = idle.pop()?;
        let sync_at_us = rows.iter().map(|row| row.at(0)).max()?;
        let run_out_us = rows.iter().map(|row| row.at(row.count() - 1)).min()?;
        let mut search = Self { rows, sync_at_us, run_out_us, heads: Tournament::new(rows.len()), idle };
        search.heads.set(slowest, search.around(slowest).0);
        Some(search)
    }

    /// The latest point of `row` that is not later than the candidate, and the one after it.
    fn around(&self, row: usize) -> (u64, Option<u64>) {
        let row = &self.rows[row];
        let i = row.latest(self.sync_at_us).unwrap_or(0);
        (row.at(i), (i + 1 < row.count()).then(|| row.at(i + 1)))
    }

    /// The span of the best window that ends at the candidate. Lets idle rows in until none could widen it.
    fn settle(&mut self) -> u64 {
        loop {
            let (head, row) = self.heads.earliest();
            let (newest, _) = self.around(row);
            if newest != head {
                self.heads.set(row, newest);
                continue;
            }
            let span_us = self.sync_at_us - head.min(self.run_out_us);
            match self.idle.pop_if(|(gap, _)| *gap > span_us) {
                Some((_, row)) => self.heads.set(row, self.around(row).0),
                None => return span_us,
            }
        }
    }

    /// Moves the candidate to the next time at which the span is below `span_us`; false if there is none.
    ///
    /// `span_us` is what [`settle`](Self::settle) returned last and not 0.
    fn leap(&mut self, span_us: u64) -> bool {
        while self.sync_at_us.saturating_sub(self.run_out_us) < span_us {
            let (head, row) = self.heads.earliest();
            if self.sync_at_us - head < span_us {
                return true;
            }
            match self.around(row) {
                (newest, _) if self.sync_at_us - newest < span_us => self.heads.set(row, newest),
                (_, Some(next)) => {
                    self.sync_at_us = next;
                    self.heads.set(row, next);
                }
                (_, None) => return false,
            }
        }
        false
    }
}

/// The earliest of one time per row, as a complete binary tree: about half a binary heap's cost
/// here, because the way to the root has a fixed length and no branch that the processor could guess wrong.
struct Tournament {
    /// Node i has children 2i and 2i+1 and holds the earlier of the two; the leaf of row r is node n+r.
    nodes: Vec<(u64, usize)>,
}

impl Tournament {
    /// `rows` >= 1. A row that was never set does not win.
    fn new(rows: usize) -> Self {
        Self { nodes: vec![(u64::MAX, 0); 2 * rows] }
    }

    fn earliest(&self) -> (u64, usize) {
        self.nodes[1]
    }

    fn set(&mut self, row: usize, time_us: u64) {
        let mut node = self.nodes.len() / 2 + row;
        let mut winner = (time_us, row);
        self.nodes[node] = winner;
        while node > 1 {
            let rival = self.nodes[node ^ 1];
            let lost = rival.0 < winner.0;
            winner = (
                select_unpredictable(lost, rival.0, winner.0),
                select_unpredictable(lost, rival.1, winner.1),
            );
            node /= 2;
            self.nodes[node] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every window that starts at a point, with every row's first point in it.
    fn by_brute_force(rows: &[Vec<u64>]) -> Option<Window> {
        let window_from = |from: u64| {
            let ends = rows.iter().map(|row| row.iter().copied().find(|&e| e >= from));
            let sync_at_us = ends.collect::<Option<Vec<_>>>()?.into_iter().max()?;
            Some((sync_at_us - from, sync_at_us))
        };
        let (span_us, sync_at_us) = rows.iter().flatten().filter_map(|&from| window_from(from)).min()?;
        let index = rows.iter().map(|row| row.iter().rposition(|&e| e <= sync_at_us).map(|i| i as u32));
        Some(Window { span_us, sync_at_us, index: index.collect::<Option<_>>()? })
    }

    fn spelled_out(row: &Row) -> Vec<u64> {
        (0..row.count).map(|i| row.at(i)).collect()
    }

    /// (name, rows, what is expected: span, sync time, indices).
    type Case<'a> = (&'a str, &'a [&'a [u64]], Option<(u64, u64, &'a [u32])>);

    #[test]
    fn narrowest_window_table() {
        #[rustfmt::skip]
        let cases: &[Case] = &[
            ("no worker",                         &[],                                   None),
            ("a worker without points",           &[&[5], &[]],                          None),
            ("descending points",                 &[&[5], &[7, 6]],                      None),
            ("one worker stops at once",          &[&[7, 9]],                            Some((0, 7, &[0]))),
            ("one point each",                    &[&[10], &[4], &[6]],                  Some((6, 10, &[0, 0, 0]))),
            // 10   20   30            a
            //           29        58  b
            ("three fast ones for one slow",      &[&[10, 20, 30], &[29, 58]],           Some((1, 30, &[2, 0]))),
            // 10        20            a
            //   12        22          b      both spans are 2
            ("earliest of equal spans",           &[&[10, 20], &[12, 22]],               Some((2, 12, &[0, 0]))),
            ("latest of equal points",            &[&[7, 7, 8], &[4, 7]],                Some((0, 7, &[1, 1]))),
            //  5 7   9                a
            //    6                    b      5..6 is as narrow as 6..7
            ("latest point not after the meeting", &[&[5, 7, 9], &[6]],                  Some((1, 6, &[0, 0]))),
            ("one worker far behind",             &[&[1, 2, 3], &[1, 5], &[90]],         Some((87, 90, &[2, 1, 0]))),
            ("FullGridScan finds only 4 here",    &[&[3, 7], &[1, 6], &[2, 3], &[6, 7]], Some((3, 6, &[0, 1, 1, 0]))),
            ("whole range of u64",                &[&[0], &[u64::MAX]],                  Some((u64::MAX, u64::MAX, &[0, 0]))),
        ];
        for (name, rows, want) in cases {
            let want =
                want.map(|(span_us, sync_at_us, index)| Window { span_us, sync_at_us, index: index.into() });
            assert_eq!(narrowest_window(rows), want, "{name}");
            let rows: Vec<_> = rows.iter().map(|row| row.to_vec()).collect();
            if !rows.iter().any(|row| row.is_empty() || !row.is_sorted()) {
                assert_eq!(by_brute_force(&rows), want, "oracle: {name}");
            }
        }
    }

    #[test]
    fn points_beyond_the_end_of_time_count_as_its_end() {
        let late = Row { first_us: u64::MAX - 5, interval_us: 4, count: 9 };
        let huge = Row { first_us: 3, interval_us: u64::MAX, count: 2 };
        let window = narrowest_window(&[late, huge]).unwrap();
        assert_eq!(window, Window { span_us: 0, sync_at_us: u64::MAX, index: vec![8, 1] });
    }

    fn any_rows() -> impl Strategy<Value = Vec<Row>> {
        let row = |first_us: std::ops::RangeInclusive<u64>, interval_us: std::ops::RangeInclusive<u64>| {
            (first_us, interval_us, 1u32..12).prop_map(|(first_us, interval_us, count)| Row {
                first_us,
                interval_us,
                count,
            })
        };
        prop_oneof![
            prop::collection::vec(row(0..=30, 0..=9), 1..9), // many ties
            prop::collection::vec(row(0..=20_000, 900..=1500), 1..30), // speeds alike
            prop::collection::vec(row(0..=90_000, 1..=90_000), 1..12), // speeds far apart
            prop::collection::vec(row(u64::MAX - 90..=u64::MAX, 0..=30), 1..6), // overflow
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn progressions_agree_with_brute_force(rows in any_rows()) {
            let points: Vec<_> = rows.iter().map(spelled_out).collect();
            let want = by_brute_force(&points);
            prop_assert_eq!(narrowest_window(&rows), want.clone());
            prop_assert_eq!(narrowest_window(&points), want);
        }

        #[test]
        fn any_ascending_points_agree_with_brute_force(
            mut points in prop::collection::vec(prop::collection::vec(0u64..60, 1..9), 1..8)
        ) {
            points.iter_mut().for_each(|row| row.sort_unstable());
            prop_assert_eq!(narrowest_window(&points), by_brute_force(&points));
        }
    }
}
