//! Tasks that are to be added to a graph.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BlobValue, Bytes, GraphDigest, TaskClass};
use crate::ids::{ContentDigest, JobId, NodeName};

/// Index of a task in its job's graph, in the order in which they were added, from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskIndex(pub u32);

impl fmt::Display for TaskIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a class in the list that goes with the tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassIndex(pub u16);

/// A task that another one refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskRef {
    /// It is in the graph.
    Task(TaskIndex),
    /// It is added together with the one that refers to it, which comes later in the list: its index there.
    New(u32),
}

/// One argument of a call. The function's input is all of them, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg {
    /// postcard of the value.
    Value(Bytes),
    /// A value that was too large for that: whoever adds the task has stored it on the parameter server.
    Blob(BlobValue),
    /// What the task gives.
    Output(TaskRef),
    /// What the tasks give, as a list.
    Outputs(Vec<TaskRef>),
    /// What the task gives, or why it gives nothing: a `Result` with a [`TaskFailure`](super::TaskFailure).
    Outcome(TaskRef),
    /// The same of each task, as a list.
    Outcomes(Vec<TaskRef>),
}

/// A task that is to be added to a graph. It refers only to tasks before it, so a graph has no cycles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// What it does and under which rules.
    pub class: ClassIndex,
    /// What it is called with, in order.
    pub args: Vec<Arg>,
    /// Tasks that must have ended before it starts, whatever they give.
    pub after: Vec<TaskRef>,
    /// For people; unique in the graph.
    pub name: Option<NodeName>,
}

impl NewTask {
    /// Every task it waits for; one that stands in two places comes twice.
    pub fn inputs(&self) -> impl Iterator<Item = TaskRef> + '_ {
        let given = self.args.iter().flat_map(|arg| match arg {
            Arg::Value(_) | Arg::Blob(_) => &[],
            Arg::Output(task) | Arg::Outcome(task) => std::slice::from_ref(task),
            Arg::Outputs(tasks) | Arg::Outcomes(tasks) => &tasks[..],
        });
        given.chain(&self.after).copied()
    }

    /// Every blob among its arguments; one that stands in two places comes twice.
    pub fn blobs(&self) -> impl Iterator<Item = ContentDigest> + '_ {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Blob(blob) => Some(blob.digest),
            Arg::Value(_) | Arg::Output(_) | Arg::Outputs(_) | Arg::Outcome(_) | Arg::Outcomes(_) => None,
        })
    }
}

/// A job of general tasks as it is submitted, or its first part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphSpec {
    /// Name of the job: no other one in the cluster has it until this one is replaced or deleted.
    pub id: JobId,
    /// Of the whole graph, this part and all others: the same graph under the same id is the same job.
    pub digest: GraphDigest,
    /// What the class indices of all tasks refer to, those of later parts included.
    pub classes: Vec<TaskClass>,
    /// Tasks of this part: the first of the graph.
    pub tasks: Vec<NewTask>,
    /// Whether these are all: otherwise more parts follow, and it begins when it is told that they have
    /// come.
    pub complete: bool,
}

/// What there is of a graph that was submitted, now or earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphReceipt {
    /// Names this job in the calls that bring the rest: another one than was sent if the graph was there
    /// already.
    pub nonce: u32,
    /// Tasks that have come, those that tasks of the graph have added included.
    pub tasks: u32,
    /// Whether all of the graph has come, or no more of it is taken.
    pub is_closed: bool,
}
