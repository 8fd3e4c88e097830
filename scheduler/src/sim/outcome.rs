//! What came out of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::timeline::Timeline;

/// Sums over a run. Fractions are of 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario's policy in its text form.
    pub policy: String,
    /// How long the scenario runs, in virtual time.
    pub duration_s: f64,
    /// Iterations that ended, also those in a local round, which is one push.
    pub pushes: u64,
    /// [`pushes`](Self::pushes) over [`duration_s`](Self::duration_s).
    pub pushes_per_s: f64,
    /// Samples of the iterations that ended, over [`duration_s`](Self::duration_s).
    pub samples_per_s: f64,
    /// Summed waits over the summed presence of all workers.
    pub waiting_fraction: f64,
    /// Most iterations of one worker beyond the slowest's at a push: inside the superstep where there are
    /// barriers, over the whole run where there are none.
    pub max_lead: u64,
    /// Updates of others between an iteration's pull and its push; 0 where a round is averaged.
    pub mean_staleness: f64,
    /// Barriers that closed.
    pub barriers: u64,
    /// Times that a superstep was planned again because a worker overran its prediction.
    pub replanned: u64,
    /// Time from the first superstep's opening to the last barrier, per barrier; 0 without one.
    pub mean_superstep_ms: f64,
    /// Root mean square of predicted minus actual interval, over all workers.
    pub prediction_rmse_ms: f64,
    /// Pushes by staleness; the last entry counts everything beyond.
    pub staleness_histogram: Vec<u64>,
    /// Supersteps by the rule that held, which only `auto` changes.
    pub rules: BTreeMap<String, u64>,
    /// Each worker's part, in the order of the scenario.
    pub per_worker: Vec<WorkerOutcome>,
    /// Boxes for a plot, if they were asked for.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// One worker's part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerOutcome {
    /// Place in the scenario, from 1.
    pub worker: usize,
    /// Iterations that it ended, counted as in [`Outcome::pushes`].
    pub pushes: u64,
    /// Its waits over its presence.
    pub waiting_fraction: f64,
    /// Samples per iteration at the end.
    pub batch: u32,
    /// Root mean square of predicted minus actual interval; 0 where nothing was predicted.
    pub prediction_rmse_ms: f64,
    /// Mean of predicted minus actual interval: above zero where predictions are too long.
    pub prediction_bias_ms: f64,
}
