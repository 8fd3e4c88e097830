//! ElasticBSP (Zhao et al., ICDM 2019): watch until every worker has pushed twice, predict `lookahead` further
//! iterations of each as equal to its last interval, and meet where ZipLine finds the narrowest window.
//!
//! Readings of the paper adopted here: the first predicted point is the next iteration (i = 1..R), R counts from the
//! end of monitoring, the barrier is a count of iterations per worker, and updates are applied as they arrive.
//! The lead of one worker over another inside a superstep is bounded by R + its monitoring iterations.

use serde::{Deserialize, Serialize};

use super::{Opening, PlanRow, Seen, SyncPolicy, UpdateMode};
use crate::sync::zipline::Row;

/// Pushes every worker makes before its speed counts as known.
const MONITORED_PUSHES: u64 = 2;

/// Remembers nothing between supersteps but its one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElasticBsp {
    lookahead: u32,
}

impl ElasticBsp {
    /// Predicts `lookahead` iterations per worker.
    pub fn new(lookahead: u32) -> Self {
        Self { lookahead: lookahead.max(1) }
    }

    /// Predicted ends of one worker's next iterations. Those granted already cannot be taken back, so the first
    /// point is the last granted one; a point that should have come already is expected now.
    fn row(&self, now_us: u64, seen: &Seen) -> PlanRow {
        let first_seq = seen.granted.max(seen.finished + 1);
        let steps_ahead = first_seq - seen.finished;
        let predicted = seen.last_end_us.saturating_add(seen.interval_us.saturating_mul(steps_ahead));
        let left = u64::from(self.lookahead).saturating_sub(steps_ahead - 1).max(1);
        PlanRow {
            worker: seen.worker,
            first_seq,
            points: Row {
                first_us: predicted.max(now_us),
                interval_us: seen.interval_us,
                count: u32::try_from(left).unwrap_or(u32::MAX),
            },
        }
    }
}

impl SyncPolicy for ElasticBsp {
    fn mode(&self) -> UpdateMode {
        UpdateMode::PerPush
    }

    fn open(&mut self, _workers: usize) -> Opening {
        Opening::Monitor
    }

    fn observe(&mut self, now_us: u64, seen: &[Seen]) -> Option<Vec<PlanRow>> {
        // A single worker has nobody to wait for.
        if seen.len() < 2 || seen.iter().any(|s| s.in_superstep < MONITORED_PUSHES) {
            return None;
        }
        Some(seen.iter().map(|s| self.row(now_us, s)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::Incarnation, sync::plan};

    fn seen(worker: u64, finished: u64, granted: u64, last_end_us: u64, interval_us: u64) -> Seen {
        Seen {
            worker: Incarnation(worker),
            finished,
            granted,
            in_superstep: finished,
            last_end_us,
            interval_us,
        }
    }

    #[test]
    fn nothing_is_planned_before_everybody_pushed_twice() {
        let mut policy = ElasticBsp::new(15);
        assert_eq!(policy.observe(0, &[seen(1, 5, 5, 500, 100), seen(2, 1, 2, 400, 400)]), None);
        assert_eq!(policy.observe(0, &[seen(1, 5, 5, 500, 100)]), None);
        assert!(policy.observe(0, &[seen(1, 5, 5, 500, 100), seen(2, 2, 3, 800, 400)]).is_some());
    }

    #[test]
    fn equal_speeds_meet_after_one_predicted_iteration_at_any_lookahead() {
        for lookahead in [1, 5, 240] {
            let rows =
                ElasticBsp::new(lookahead).observe(200, &[seen(1, 2, 2, 200, 100), seen(2, 2, 2, 200, 100)]);
            let plan = plan(&rows.unwrap()).unwrap();
            assert_eq!(plan.last, [(Incarnation(1), 3), (Incarnation(2), 3)].into());
            assert_eq!(plan.predicted_wait_us, 0);
        }
    }

    #[test]
    fn a_twice_slower_worker_meets_the_fast_one_without_waiting() {
        // fast: |300 400 500 600     slow: |600 800: the slow one's third iteration ends with the fast one's sixth.
        let rows =
            ElasticBsp::new(15).observe(400, &[seen(1, 4, 4, 400, 100), seen(2, 2, 2, 400, 200)]).unwrap();
        let plan = plan(&rows).unwrap();
        assert_eq!(plan.last, [(Incarnation(1), 6), (Incarnation(2), 3)].into());
        assert_eq!((plan.span_us, plan.sync_at_us), (0, 600));
    }

    #[test]
    fn a_granted_iteration_is_never_taken_back() {
        let rows =
            ElasticBsp::new(1).observe(0, &[seen(1, 4, 6, 400, 100), seen(2, 2, 2, 400, 100)]).unwrap();
        assert_eq!((rows[0].first_seq, rows[0].points.first_us, rows[0].points.count), (6, 600, 1));
        assert_eq!((rows[1].first_seq, rows[1].points.first_us), (3, 500));
    }

    #[test]
    fn a_late_worker_is_expected_now() {
        let rows =
            ElasticBsp::new(3).observe(900, &[seen(1, 2, 3, 400, 100), seen(2, 2, 3, 400, 500)]).unwrap();
        assert_eq!((rows[0].points.first_us, rows[1].points.first_us), (900, 900));
    }
}
