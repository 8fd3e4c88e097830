//! Tasks as people and programs look at them.

use serde::{Deserialize, Serialize};

use super::{Preview, TaskIndex, TaskState};
use crate::ids::{Name, NodeName};

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
    pub task: TaskIndex,
    pub name: Option<NodeName>,
    /// The function that it calls; `train` where a job trains for it.
    pub function: Name,
    pub state: TaskState,
    /// Attempts that have begun.
    pub attempts: u16,
    /// Who has it, by name and number.
    pub worker: Option<String>,
    /// The first of the tasks that it needs, and how many there are.
    pub inputs: Vec<TaskIndex>,
    pub inputs_total: u32,
    /// What it gave, if that is kept and people may look at it.
    pub value: Option<Preview>,
    /// Size of what it gave, as it travels, if that is kept.
    pub value_bytes: Option<u64>,
    pub reason: String,
}
