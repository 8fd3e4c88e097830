//! What is told of a barrier or a task: types that travel and are printed with `--json`.

use serde::{Deserialize, Serialize};

use crate::{
    graph::TaskId,
    ids::{Incarnation, Superstep, as_text},
    sync::{Why, search::Alternative},
};

/// A barrier: what was predicted, what was weighed, what was chosen, and what happened. Times are µs after the
/// superstep opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarrierExplanation {
    pub barrier: Superstep,
    /// `open`, `planning`, `ordered` or `closed`.
    pub state: String,
    pub why: Why,
    pub opened_ms: u64,
    pub expected_us: Option<u64>,
    pub closed_us: Option<u64>,
    /// Predicted wait of the worker that waits longest.
    pub span_us: Option<u64>,
    pub predicted_wait_us: Option<u64>,
    pub actual_wait_us: Option<u64>,
    /// Windows that were weighed besides the chosen one.
    pub alternatives: Vec<Alternative>,
    pub workers: Vec<WorkerExplanation>,
}

/// One worker's part in a superstep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerExplanation {
    #[serde(with = "as_text")]
    pub worker: Incarnation,
    pub name: String,
    /// Iterations of this superstep: how many it is to do, once decided, and how many it has done.
    pub iterations: Option<u64>,
    pub done: u64,
    pub batch: u32,
    pub predicted_interval_us: Option<u64>,
    pub expected_us: Option<u64>,
    pub arrived_us: Option<u64>,
    pub predicted_wait_us: Option<u64>,
    pub actual_wait_us: Option<u64>,
    /// Whether the barrier waits for it.
    pub awaited: bool,
    #[serde(rename = "slow")]
    pub straggler: Option<StragglerExplanation>,
}

/// A worker that is much slower than most, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StragglerExplanation {
    pub since_ms: u64,
    /// Its predicted time per sample over the median.
    pub factor: f64,
}

/// A task: its state, and in words why it is in that state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskExplanation {
    pub task: TaskId,
    pub state: String,
    pub reasons: Vec<String>,
    /// Tasks it needs, with their states.
    pub needs: Vec<(TaskId, String)>,
}

/// Why everything that is kept of a training is where it is, all as of one commit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptExplanations {
    pub barriers: Vec<BarrierExplanation>,
    /// Nodes, the newest finished iterations and barriers, and all that are not over.
    pub tasks: Vec<TaskExplanation>,
}
