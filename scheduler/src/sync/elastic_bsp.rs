//! ElasticBSP (Zhao et al., ICDM 2019, arXiv:2001.01347): watch until every worker has pushed twice, predict
//! `lookahead` further iterations of each, and meet where ZipLine finds the narrowest window.
//!
//! Point i of a worker is predicted at e_i = last push + i · interval. The paper's interval is the last one;
//! any [predictor](crate::predict) may give it. Readings adopted: the first predicted point is the next
//! iteration (i = 1..R; `first=0` takes i = 0..R−1), R counts from the end of monitoring, the barrier is a
//! count of iterations per worker, and updates are applied as they arrive (`update=barrier` averages them
//! instead). The lead of one worker over another inside a superstep is bounded by R plus its monitoring
//! iterations, or by `max-lead` where that is set.

use serde::{Deserialize, Serialize};

use super::{
    Aggregation, Context, EndRule, PlanRow, PlanningBasis, SearchOptions, SuperstepRules, SyncPolicy, Why,
    WorkerProgress,
};
use crate::{spec::ElasticOptions, sync::search::Row};

/// Pushes every worker makes before its speed counts as known.
const MONITORED_PUSHES: u64 = 2;

/// Remembers nothing between supersteps but its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElasticBsp {
    options: ElasticOptions,
}

impl ElasticBsp {
    /// With these settings.
    pub fn new(options: ElasticOptions) -> Self {
        Self { options }
    }

    /// Predicted ends of one worker's next iterations. Those granted already cannot be taken back, so the
    /// first point is the last granted one; a point that should have come already is expected now.
    fn row(&self, now_us: u64, seen: &WorkerProgress, most_in_superstep: u64) -> PlanRow {
        // A worker that may not go further and has nothing in hand ends where it is.
        let stays = seen.in_superstep >= most_in_superstep && seen.granted == seen.finished;
        let skipped = if stays { 0 } else { u64::from(self.options.first) };
        let first_seq = seen.granted.max(seen.finished + skipped);
        let steps_ahead = first_seq - seen.finished;
        let predicted = seen.last_end_us.saturating_add(seen.interval_us.saturating_mul(steps_ahead));
        let first_in_superstep = seen.in_superstep + steps_ahead;
        let left = (u64::from(self.options.lookahead) + skipped)
            .saturating_sub(steps_ahead)
            .min((most_in_superstep + 1).saturating_sub(first_in_superstep))
            .max(1);
        PlanRow {
            worker: seen.worker,
            first_seq,
            points: Row {
                first_us: if steps_ahead == 0 { predicted } else { predicted.max(now_us) },
                interval_us: seen.interval_us,
                count: u32::try_from(left).unwrap_or(u32::MAX),
            },
        }
    }
}

impl SyncPolicy for ElasticBsp {
    fn open(&mut self, _: &Context<'_>) -> SuperstepRules {
        let aggregation = if self.options.average { Aggregation::PerBarrier } else { Aggregation::PerPush };
        let why = Why::rule(format!(
            "everybody's speed is watched for {MONITORED_PUSHES} iterations, then the narrowest meeting within the \
             next {} is chosen",
            self.options.lookahead
        ));
        let ending = EndRule::Monitor { pushes: MONITORED_PUSHES };
        SuperstepRules {
            max_lead: self.options.max_lead.map(u64::from),
            ..SuperstepRules::new(ending, aggregation, why)
        }
    }

    fn rows(&self, now_us: u64, seen: &[WorkerProgress]) -> Vec<PlanRow> {
        let behind = seen.iter().map(|s| s.in_superstep).min().unwrap_or(0);
        let most = self.options.max_lead.map_or(u64::MAX - 1, |lead| behind + u64::from(lead));
        seen.iter().map(|s| self.row(now_us, s, most)).collect()
    }

    fn planning_basis(&self) -> PlanningBasis {
        // How far the lead would have come while everybody was watched is not known without watching.
        if self.options.max_lead.is_some() { PlanningBasis::Watching } else { PlanningBasis::Speeds }
    }

    fn rows_ahead(&self, begin_us: u64, workers: &[WorkerProgress]) -> Vec<PlanRow> {
        // Watching would end with the slowest worker's second push; whoever is faster has pushed more often
        // by then.
        let slowest_us = workers.iter().map(|s| s.interval_us).max().unwrap_or(0);
        let watched_us = slowest_us.saturating_mul(MONITORED_PUSHES);
        let row = |s: &WorkerProgress| {
            let pushes = watched_us.checked_div(s.interval_us).unwrap_or(MONITORED_PUSHES);
            let steps = pushes.max(MONITORED_PUSHES) + u64::from(self.options.first);
            let first_us = begin_us.saturating_add(s.interval_us.saturating_mul(steps));
            let points = Row { first_us, interval_us: s.interval_us, count: self.options.lookahead };
            PlanRow { worker: s.worker, first_seq: s.granted + steps, points }
        };
        workers.iter().map(row).collect()
    }

    fn search_options(&self) -> SearchOptions {
        SearchOptions { algorithm: self.options.algorithm, early: self.options.early }
    }

    fn overrun_factor(&self) -> Option<f64> {
        Some(self.options.overrun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::Incarnation, sync::plan};

    fn elastic(lookahead: u32) -> ElasticBsp {
        ElasticBsp::new(ElasticOptions { lookahead, ..ElasticOptions::default() })
    }

    fn seen(worker: u64, finished: u64, granted: u64, last_end_us: u64, interval_us: u64) -> WorkerProgress {
        WorkerProgress {
            worker: Incarnation(worker),
            finished,
            granted,
            in_superstep: finished,
            last_end_us,
            interval_us,
        }
    }

    #[test]
    fn equal_speeds_meet_after_one_predicted_iteration_at_any_lookahead() {
        for lookahead in [1, 5, 240] {
            let rows = elastic(lookahead).rows(200, &[seen(1, 2, 2, 200, 100), seen(2, 2, 2, 200, 100)]);
            let plan = plan(&rows, SearchOptions::default()).unwrap();
            assert_eq!(plan.last, [(Incarnation(1), 3), (Incarnation(2), 3)].into());
            assert_eq!(plan.predicted_wait_us, 0);
        }
    }

    #[test]
    fn a_twice_slower_worker_meets_the_fast_one_without_waiting() {
        // fast: |300 400 500 600     slow: |600 800: the slow one's third iteration ends with the fast one's
        // sixth.
        let rows = elastic(15).rows(400, &[seen(1, 4, 4, 400, 100), seen(2, 2, 2, 400, 200)]);
        let plan = plan(&rows, SearchOptions::default()).unwrap();
        assert_eq!(plan.last, [(Incarnation(1), 6), (Incarnation(2), 3)].into());
        assert_eq!((plan.span_us, plan.sync_at_us), (0, 600));
    }

    #[test]
    fn an_early_meeting_is_preferred_when_it_is_hardly_wider() {
        // fast: 210 310 410 510 610 ..    slow: 202 404 606: spans 8, 6 and 4, the narrowest last.
        let seen = [seen(1, 2, 2, 110, 100), seen(2, 2, 2, 0, 202)];
        let rows = elastic(5).rows(110, &seen);
        let at = |early: &str| {
            let search_options = SearchOptions { early: early.parse().unwrap(), ..SearchOptions::default() };
            let plan = plan(&rows, search_options).unwrap();
            (plan.sync_at_us, plan.span_us)
        };
        assert_eq!([at("0"), at("0.5"), at("1")], [(610, 4), (410, 6), (210, 8)]);
    }

    #[test]
    fn a_granted_iteration_is_never_taken_back() {
        let rows = elastic(1).rows(0, &[seen(1, 4, 6, 400, 100), seen(2, 2, 2, 400, 100)]);
        assert_eq!((rows[0].first_seq, rows[0].points.first_us, rows[0].points.count), (6, 600, 1));
        assert_eq!((rows[1].first_seq, rows[1].points.first_us), (3, 500));
    }

    #[test]
    fn before_it_begins_a_superstep_is_planned_as_if_everybody_were_watched_at_its_speed() {
        // From 1000 on. fast: 1100 1200 | 1300 .. until the slow one has pushed twice, at 1500, it does 5.
        //               slow: 1250 1500 | 1750
        let rows = elastic(15).rows_ahead(1000, &[seen(1, 7, 7, 0, 100), seen(2, 4, 4, 0, 250)]);
        let first = |i: usize| (rows[i].first_seq, rows[i].points.first_us, rows[i].points.count);
        assert_eq!((first(0), first(1)), ((7 + 6, 1600, 15), (4 + 3, 1750, 15)));
        let equal = elastic(15).rows_ahead(0, &[seen(1, 0, 0, 0, 100), seen(2, 0, 0, 0, 100)]);
        let plan = plan(&equal, SearchOptions::default()).unwrap();
        assert_eq!((plan.last, plan.span_us), ([(Incarnation(1), 3), (Incarnation(2), 3)].into(), 0));
    }

    #[test]
    fn a_late_worker_is_expected_now() {
        let rows = elastic(3).rows(900, &[seen(1, 2, 3, 400, 100), seen(2, 2, 3, 400, 500)]);
        assert_eq!((rows[0].points.first_us, rows[1].points.first_us), (900, 900));
    }

    #[test]
    fn the_authors_first_point_is_the_last_push_itself() {
        let mut policy = elastic(15);
        policy.options.first = 0;
        let rows = policy.rows(400, &[seen(1, 4, 4, 400, 100)]);
        assert_eq!((rows[0].first_seq, rows[0].points.first_us, rows[0].points.count), (4, 400, 15));
    }

    #[test]
    fn a_bound_on_the_lead_shortens_the_rows_of_those_ahead() {
        let mut policy = elastic(15);
        policy.options.max_lead = Some(6);
        // The slower has done 2, so nobody may come beyond 8 in this superstep.
        let rows = policy.rows(400, &[seen(1, 4, 4, 400, 100), seen(2, 2, 2, 400, 200)]);
        assert_eq!(rows[0].first_seq + u64::from(rows[0].points.count) - 1, 8);
        assert_eq!(rows[1].first_seq + u64::from(rows[1].points.count) - 1, 8);
    }

    #[test]
    fn a_worker_at_the_bound_ends_where_it_is() {
        let mut policy = elastic(15);
        policy.options.max_lead = Some(2);
        let rows = policy.rows(450, &[seen(1, 4, 4, 400, 100), seen(2, 2, 3, 400, 200)]);
        assert_eq!((rows[0].first_seq, rows[0].points.first_us, rows[0].points.count), (4, 400, 1));
        assert_eq!((rows[1].first_seq, rows[1].points.first_us), (3, 600));
    }
}
