//! Tasks as people and programs look at them.

use serde::{Deserialize, Serialize};

use super::{Preview, Progress, TaskIndex, TaskState};
use crate::{
    fault_code::FaultCode,
    ids::{Name, NodeName},
};

/// Which tasks of a job to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskQuery {
    /// The first to look at.
    pub first: TaskIndex,
    /// Most to answer.
    pub limit: u32,
    /// Only those in this state.
    pub state: Option<TaskState>,
    /// Only the one of this name.
    pub name: Option<NodeName>,
}

/// The first thousand of all.
impl Default for TaskQuery {
    fn default() -> Self {
        Self { first: TaskIndex::default(), limit: 1_000, state: None, name: None }
    }
}

/// One task, and in a sentence why it is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// Index in the job.
    pub task: TaskIndex,
    /// Its name in the graph, if it has one.
    pub name: Option<NodeName>,
    /// The function that it calls; `train` where a job trains for it.
    pub function: Name,
    /// Where it stands.
    pub state: TaskState,
    /// Attempts so far, those included that were given back before they began, as a task is that waited on
    /// its worker for another one which failed.
    pub attempts: u16,
    /// Who has it, or had it last, by name and number.
    pub worker: Option<String>,
    /// Since when its function runs, in milliseconds since the epoch of Unix: as its worker has told within
    /// the last seconds.
    #[serde(default)]
    pub running_since_ms: Option<u64>,
    /// How far that function says it is, if it does.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// How long its newest attempt ran that has ended, waiting not counted; as `ended_ms` known of the ten
    /// thousand of a job that ended last, by the engine that was told so.
    #[serde(default)]
    pub run_us: Option<u64>,
    /// When that ended, in milliseconds since the epoch of Unix.
    #[serde(default)]
    pub ended_ms: Option<u64>,
    /// The first 64 of the tasks that it needs.
    pub inputs: Vec<TaskIndex>,
    /// How many tasks it needs; one that it needs twice counts twice.
    pub inputs_total: u32,
    /// What it gave, if that is kept and people may look at it.
    pub value: Option<Preview>,
    /// Size of what it gave, as it travels, if that is kept.
    pub value_bytes: Option<u64>,
    /// Code of the failure that the reason tells of: its own, that of a task for want of which it was
    /// skipped, or that of its job.
    #[serde(default)]
    pub code: Option<FaultCode>,
    /// Why it is in that state, in a sentence without a full stop.
    pub reason: String,
}
