//! Why tasks cannot be added to a graph.

use super::graph::MAX_TASKS;
use crate::{
    fault_code::FaultCode,
    ids::NodeName,
    tasks::{InvalidTraining, TaskIndex},
};

/// Why a graph of general tasks, or a part of one, was refused. Nothing of that part has been stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGraph {
    /// It was started without any task.
    #[error("[E042] a graph without tasks")]
    Empty,
    /// With this part the graph is larger than a job can be.
    #[error(
        "[E043] {tasks} tasks with their arguments are too many for one job: at most {MAX_TASKS}, and 4 GB"
    )]
    TooManyTasks {
        /// Tasks that it would have.
        tasks: u64,
    },
    /// An input is the task itself, a later one or, where a task adds it, one from outside what is added.
    #[error("[E044] task {task} refers to a task that does not come before it")]
    Reference {
        /// Index that it has in the graph, or would have.
        task: TaskIndex,
    },
    /// The name stands in the graph already, or twice in the part.
    #[error("[E045] two tasks are named {name}")]
    Name {
        /// Name that comes twice.
        name: NodeName,
    },
    /// The record of a task has more than 1 MiB.
    #[error("[E046] task {task} is called with {bytes} bytes; what is large must be a blob")]
    TooLarge {
        /// Index that it would have in the graph.
        task: TaskIndex,
        /// Size of the record, arguments included.
        bytes: usize,
    },
    /// A task names a class beyond those in the list that goes with it.
    #[error("[E047] task {task} is of a class that is not in the list")]
    Class {
        /// Index that it would have in the graph.
        task: TaskIndex,
    },
    /// With those of earlier parts, and of tasks that have added some.
    #[error("[E048] more than 4096 classes of tasks: functions with their rules")]
    TooManyClasses,
    /// A class of calls with `slots` 0.
    #[error("[E049] a task needs at least one slot")]
    NoSlots,
    /// A class with `run_limit_ms` or `queue_limit_ms` 0.
    #[error("[E062] {limit} is 0: no task could be done in that time")]
    NoTime {
        /// Which of the two, as it is called in `CallOptions`.
        limit: &'static str,
    },
    /// A class of calls with a label that no worker can carry.
    #[error("[E063] a label of a task has no name")]
    NamelessLabel,
    /// Parts are missing between what is there and what came, or at the start.
    #[error("[E050] the part begins with task {given}, and the graph has {there}")]
    Gap {
        /// First task of the part; at the start, the number of all tasks.
        given: TaskIndex,
        /// Tasks that the graph has.
        there: u32,
    },
    /// A part came after the start.
    #[error("[E051] the job has begun: nothing can be added to it from outside")]
    Started,
    /// A class that trains has needs or a priority other than the default.
    #[error(
        "[E057] a training has no slots, labels, memory, GPUs and priority: its own settings say which workers it takes"
    )]
    TrainingNeeds,
    /// A class that trains makes no valid job.
    #[error(transparent)]
    Training(InvalidTraining),
}

impl InvalidGraph {
    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Empty => "E042",
            Self::TooManyTasks { .. } => "E043",
            Self::Reference { .. } => "E044",
            Self::Name { .. } => "E045",
            Self::TooLarge { .. } => "E046",
            Self::Class { .. } => "E047",
            Self::TooManyClasses => "E048",
            Self::NoSlots => "E049",
            Self::NoTime { .. } => "E062",
            Self::NamelessLabel => "E063",
            Self::Gap { .. } => "E050",
            Self::Started => "E051",
            Self::TrainingNeeds => "E057",
            Self::Training(invalid) => return invalid.code(),
        })
    }
}
