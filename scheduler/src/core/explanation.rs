//! What is told of a barrier or a task: types that travel and are printed with `--json`.

use serde::{Deserialize, Serialize};

use crate::{
    graph::TaskId,
    ids::{Incarnation, Superstep, as_text},
    sync::{Why, search::Alternative},
};

/// A barrier: what was predicted, what was weighed, what was chosen, and what happened. Times are µs after
/// the superstep opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarrierExplanation {
    /// Superstep that it ends, from 0.
    pub barrier: Superstep,
    /// `open`, `planning`, `ordered` or `closed`.
    pub state: String,
    /// The rule that put it there, and the figures it rests on.
    pub why: Why,
    /// When its superstep opened, in epoch ms.
    pub opened_ms: u64,
    /// When everybody is expected to be there, by the newest plan; `None`: not planned, or by count alone.
    pub expected_us: Option<u64>,
    /// When the last shard closed it; `None`: it is open.
    pub closed_us: Option<u64>,
    /// Predicted wait of the worker that waits longest.
    pub span_us: Option<u64>,
    /// Predicted waits of all workers together; `None`: nothing was predicted.
    pub predicted_wait_us: Option<u64>,
    /// Actual waits of all workers together; `None`: it is open. 0 as long as some worker's arrival is not
    /// reported.
    pub actual_wait_us: Option<u64>,
    /// Windows that were weighed besides the chosen one.
    pub alternatives: Vec<Alternative>,
    /// Who takes part, by incarnation.
    pub workers: Vec<WorkerExplanation>,
}

/// One worker's part in a superstep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerExplanation {
    /// The incarnation under which it takes part.
    #[serde(with = "as_text")]
    pub worker: Incarnation,
    /// As people call it; empty if it has no name or is forgotten.
    pub name: String,
    /// Iterations of this superstep: how many it is to do, once decided, and how many it has done.
    pub iterations: Option<u64>,
    /// Iterations of it that it has done, up to the first that is still open.
    pub done: u64,
    /// Samples per iteration.
    pub batch: u32,
    /// Predicted time of one iteration without waiting; `None`: not all speeds were known, or none was
    /// needed.
    pub predicted_interval_us: Option<u64>,
    /// When its last iteration is predicted to end; `None`: the superstep has no plan, as all do as many
    /// iterations.
    pub expected_us: Option<u64>,
    /// When its last iteration ended; `None`: the barrier is open, or that is not reported.
    pub arrived_us: Option<u64>,
    /// From its predicted end to that of everybody; `None`: nothing was predicted.
    pub predicted_wait_us: Option<u64>,
    /// From its arrival to the close of the barrier; `None` before both are known.
    pub actual_wait_us: Option<u64>,
    /// Whether the barrier waits for it.
    pub awaited: bool,
    /// Set while it is slow now, whether or not it was in this superstep.
    #[serde(rename = "slow")]
    pub straggler: Option<StragglerExplanation>,
}

/// A worker that is much slower than most, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StragglerExplanation {
    /// When it became so, in epoch ms.
    pub since_ms: u64,
    /// Its predicted time per sample over the median.
    pub factor: f64,
}

/// A task: its state, and in words why it is in that state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskExplanation {
    /// What was asked for; it need not be in the graph any more, or yet.
    pub task: TaskId,
    /// A word, as in Redis: `ready`, `leased`, `done`, ...; `planned`: it is not in the graph yet.
    pub state: String,
    /// At least one. For one that is leased: what its pull waits for, and who has it in hand.
    pub reasons: Vec<String>,
    /// Tasks it needs, with their states.
    pub needs: Vec<(TaskId, String)>,
}

/// Why everything that is kept of a training is where it is, all as of one commit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptExplanations {
    /// Those that are open and the newest that have closed, in order.
    pub barriers: Vec<BarrierExplanation>,
    /// Nodes, the newest finished iterations and barriers, and all that are not over.
    pub tasks: Vec<TaskExplanation>,
}
