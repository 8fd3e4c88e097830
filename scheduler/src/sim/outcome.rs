//! What came out of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::timeline::Timeline;

/// Sums over a run. Fractions are of 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub policy: String,
    pub duration_s: f64,
    pub pushes: u64,
    pub pushes_per_s: f64,
    pub samples_per_s: f64,
    /// Summed waits over the summed presence of all workers.
    pub waiting_fraction: f64,
    /// Most iterations of one worker beyond the slowest's at a push: inside the superstep where there are barriers,
    /// over the whole run where there are none.
    pub max_lead: u64,
    /// Updates of others between an iteration's pull and its push; 0 where a round is averaged.
    pub mean_staleness: f64,
    pub barriers: u64,
    pub replanned: u64,
    pub mean_superstep_ms: f64,
    /// Root mean square of predicted minus actual interval, over all workers.
    pub prediction_rmse_ms: f64,
    /// Pushes by staleness; the last entry counts everything beyond.
    pub staleness_histogram: Vec<u64>,
    /// Supersteps by the rule that held, which only `auto` changes.
    pub rules: BTreeMap<String, u64>,
    pub per_worker: Vec<WorkerOutcome>,
    /// Boxes for a plot, if they were asked for.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// One worker's part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerOutcome {
    pub worker: usize,
    pub pushes: u64,
    pub waiting_fraction: f64,
    /// Samples per iteration at the end.
    pub batch: u32,
    pub prediction_rmse_ms: f64,
    pub prediction_bias_ms: f64,
}
