//! What a worker says of general tasks.

use serde::{Deserialize, Serialize};

use super::{NewTask, Preview, TaskClass, TaskIndex, Value};
use crate::{
    fault_code::FaultCode,
    ids::{ContentDigest, SubmissionId},
};

/// Attempts of one job that have ended, in the order in which they did. Repeated until acknowledged; a
/// repeated one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportGroup {
    /// As in the order: the report of another job of the same name changes nothing.
    pub submission: SubmissionId,
    /// What ended, the first first.
    pub ended: Vec<TaskEnd>,
}

/// One attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Index in the job.
    pub task: TaskIndex,
    /// As in the order, from 1: the end of any but the current attempt changes nothing.
    pub attempt: u16,
    /// How long it ran, waiting not counted.
    pub run_us: u64,
    /// How it ended, with what it gave.
    pub outcome: Outcome,
    /// Of the value, where people may look at it.
    pub preview: Option<Preview>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It gives this.
    Value(Value),
    /// It has nothing to give, and whatever needs it is skipped, too.
    Skipped,
    /// It was told to stop because its job is to end, and did so without anything to give.
    Stopped,
    /// It could not begin, because something that it needs could not be fetched: the attempt counts as none,
    /// and others come first for the next.
    NotBegun,
    /// It was asked for before it began, or its worker is stopped, and never will here: the attempt counts as
    /// none.
    GivenBack,
    /// It failed; another attempt follows while the budget for that cause lasts.
    Failed(Failure),
    /// It gives a value, or that of one of the new tasks, and adds tasks to its graph.
    Spawned(Box<Spawned>),
    /// It failed, and says that no other attempt would do better: none follows.
    FailedForGood(Failure),
    /// It could not begin: values that it takes are on none of the shards.
    ArgumentsLost(Box<LostValues>),
}

impl Outcome {
    /// The value that the task gives itself, if it gives one.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Spawned(spawned) => spawned.gives.value(),
            Self::Skipped
            | Self::Stopped
            | Self::NotBegun
            | Self::GivenBack
            | Self::Failed(_)
            | Self::FailedForGood(_)
            | Self::ArgumentsLost(_) => None,
        }
    }

    /// The tasks that it adds.
    pub(crate) fn added(&self) -> &[NewTask] {
        if let Self::Spawned(spawned) = self { &spawned.tasks } else { &[] }
    }
}

/// Tasks that a task adds to its own graph, committed together with its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// What the classes of `tasks` refer to.
    pub classes: Vec<TaskClass>,
    /// They may refer to each other only, as [`TaskRef::New`](super::TaskRef::New).
    pub tasks: Vec<NewTask>,
    /// What the task itself gives.
    pub gives: Gives,
}

/// What a task gives that adds tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gives {
    /// This.
    Value(Value),
    /// What the new task at this index of [`Spawned::tasks`] gives.
    New(u32),
}

impl Gives {
    /// The value that the task gives itself, if it gives one.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::New(_) => None,
        }
    }
}

/// Values that a task takes and that are lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostValues {
    /// Of the blobs that held them, see [`BlobValue`](super::BlobValue): at most
    /// [`MAX_LOST_VALUES`](super::MAX_LOST_VALUES).
    pub digests: Vec<ContentDigest>,
    /// How the attempt has failed where they cannot be made again.
    pub failure: Failure,
}

/// Most values of which one attempt says that they are lost: the next one says it of others.
pub const MAX_LOST_VALUES: usize = 1_000;

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose budget of attempts it uses up.
    pub cause: FailureCause,
    /// Stable, see docs/errors.md.
    pub code: FaultCode,
    /// What went wrong, for people; it may begin with the code in brackets.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_gives_that_adds_tasks_travels_in_the_bytes_of_before() {
        let value = Value::Inline(vec![7, 9].into());
        let spawned = |gives| Spawned { classes: Vec::new(), tasks: Vec::new(), gives };
        #[rustfmt::skip]
        let cases = [
            (Gives::Value(value.clone()), Ok(value), vec![0, 0, 0, 0, 2, 7, 9]),
            (Gives::New(300),             Err(300),  vec![0, 0, 1, 0xac, 0x02]),
        ];
        for (gives, before, bytes) in cases {
            let before: Result<Value, u32> = before;
            let spawned = spawned(gives);
            let written = postcard::to_allocvec(&spawned).unwrap();
            assert_eq!(written, bytes, "{spawned:?}");
            // Behind two empty lists.
            assert_eq!(written[2..], postcard::to_allocvec(&before).unwrap(), "{spawned:?}");
            assert_eq!(postcard::from_bytes::<Spawned>(&written).unwrap(), spawned);
        }
    }
}
