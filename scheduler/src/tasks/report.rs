//! What a worker says of general tasks.

use serde::{Deserialize, Serialize};

use super::{NewTask, Preview, TaskClass, TaskIndex, Value};
use crate::ids::JobId;

/// Attempts of one job that have ended, in the order in which they did. Repeated until acknowledged; a repeated one changes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportGroup {
    pub job: JobId,
    pub nonce: u32,
    pub ended: Vec<TaskEnd>,
}

/// One attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    pub task: TaskIndex,
    pub attempt: u16,
    /// How long it ran, waiting not counted.
    pub run_us: u32,
    pub outcome: Outcome,
    /// Of the value, where people may look at it.
    pub preview: Option<Preview>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Value(Value),
    /// It has nothing to give, and whatever needs it is skipped, too.
    Skipped,
    /// It was told to stop because its job is to end, and did so without anything to give.
    Stopped,
    /// It was asked for before it began, and never will here: the attempt counts as none.
    NotBegun,
    Failed(Failure),
    /// It gives a value, or that of one of the new tasks, and adds tasks to its graph.
    Spawned(Box<Spawned>),
}

/// Tasks that a task adds to its own graph, committed together with its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// What the classes of `tasks` refer to.
    pub classes: Vec<TaskClass>,
    pub tasks: Vec<NewTask>,
    /// The value of the task itself; without one it gives what the new task at this index gives.
    pub value: Result<Value, u32>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub cause: FailureCause,
    /// Stable, see docs/errors.md.
    pub code: String,
    pub reason: String,
}

/// Why an attempt failed: this decides which budget it is tried again from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCause {
    /// The function said so, panicked, or took too long.
    Function,
    /// The worker could not fetch an argument, or could not store the value.
    Worker,
}
