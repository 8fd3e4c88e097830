//! A plan: where each worker's superstep ends, and what was expected of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::search::{Algorithm, Alternative, Points, Row, Slack, alternatives, earliest_within, search};
use crate::ids::{Incarnation, RunId, Superstep};

/// Windows that a plan keeps besides the one it chose.
const ALTERNATIVES_KEPT: usize = 8;

/// Predicted ends of one worker's next iterations; point i belongs to iteration `first_seq + i`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRow {
    /// Whose iterations they are.
    pub worker: Incarnation,
    /// The first iteration with which it may end the superstep.
    pub first_seq: u64,
    /// When each of them ends, on the engine's clock.
    pub points: Row,
}

/// How the meeting is looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchOptions {
    /// Which search finds the narrowest window; `early` is heeded by the default one only.
    pub algorithm: Algorithm,
    /// Take the earliest window that is at most this share wider than the narrowest; 0: the narrowest.
    pub early: Slack,
}

/// A plan that somebody else should compute, because it may take longer than the engine's loop can wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRequest {
    /// Run whose workers are to meet: a plan that comes back when there is a later one is dropped.
    pub run: RunId,
    /// Superstep that the meeting ends.
    pub superstep: Superstep,
    /// Revision of the superstep's roster that it is made for.
    pub revision: u32,
    /// What is predicted of each worker, one row each.
    pub rows: Vec<PlanRow>,
    /// How the window is searched in them.
    pub search_options: SearchOptions,
}

/// Where the superstep ends, with what the decision rested on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Last iteration of each worker.
    pub last: BTreeMap<Incarnation, u64>,
    /// Width of the window: the longest predicted wait.
    pub span_us: u64,
    /// When everybody is expected to be there, on the engine's clock.
    pub sync_at_us: u64,
    /// Predicted waits of all workers together.
    pub predicted_wait_us: u64,
    /// Other windows on the way to this one, widest first.
    pub alternatives: Vec<Alternative>,
}

/// Finds the window over all rows. `None` without rows. Cost as [`search`].
pub fn plan(rows: &[PlanRow], search_options: SearchOptions) -> Option<Plan> {
    let points: Vec<Row> = rows.iter().map(|r| r.points).collect();
    let window = match search_options {
        SearchOptions { algorithm: Algorithm::Skipping, early } if early != Slack::default() => {
            earliest_within(&points, early)?
        }
        SearchOptions { algorithm, .. } => search(algorithm, &points)?,
    };
    let chosen = Alternative { span_us: window.span_us, sync_at_us: window.sync_at_us };
    let alternatives =
        alternatives(&points, ALTERNATIVES_KEPT + 1).into_iter().filter(|w| *w != chosen).collect();
    let mut plan = Plan {
        last: BTreeMap::new(),
        span_us: window.span_us,
        sync_at_us: window.sync_at_us,
        predicted_wait_us: 0,
        alternatives,
    };
    for (row, &index) in rows.iter().zip(&window.index) {
        plan.predicted_wait_us += window.sync_at_us.saturating_sub(row.points.at(index));
        plan.last.insert(row.worker, row.first_seq + u64::from(index));
    }
    Some(plan)
}
