//! Why tasks cannot be added to a graph.

use super::graph::MAX_TASKS;
use crate::{
    ids::NodeName,
    tasks::{InvalidTraining, TaskIndex},
};

/// Why a graph of general tasks, or a part of one, was refused. Nothing of that part has been stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidGraph {
    #[error("[E042] a graph without tasks")]
    Empty,
    #[error(
        "[E043] {tasks} tasks with their arguments are too many for one job: at most {MAX_TASKS}, and 4 GB"
    )]
    TooManyTasks { tasks: u64 },
    #[error("[E044] task {task} refers to a task that does not come before it")]
    Reference { task: TaskIndex },
    #[error("[E045] two tasks are named {name}")]
    Name { name: NodeName },
    #[error("[E046] task {task} is called with {bytes} bytes; what is large must be a blob")]
    TooLarge { task: TaskIndex, bytes: usize },
    #[error("[E047] task {task} is of a class that is not in the list")]
    Class { task: TaskIndex },
    #[error("[E048] more than 4096 classes of tasks: functions with their rules")]
    TooManyClasses,
    #[error("[E049] a task needs at least one slot")]
    NoSlots,
    #[error("[E050] the part begins with task {given}, and the graph has {there}")]
    Gap { given: TaskIndex, there: u32 },
    #[error("[E051] the job has begun: nothing can be added to it from outside")]
    Started,
    #[error(
        "[E057] a training has no slots, labels, memory, GPUs and priority: its own settings say which workers it takes"
    )]
    TrainingNeeds,
    #[error(transparent)]
    Training(InvalidTraining),
}
