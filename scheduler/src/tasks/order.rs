//! What a worker is told to do with general tasks.

use std::slice;

use serde::{Deserialize, Serialize};

use super::{FunctionId, TaskFailure, TaskIndex, Value};
use crate::ids::SubmissionId;

/// One entry of what a worker is told, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// It now holds these, and begins each once there are slots and what it waits for here has ended.
    Run(OrderGroup),
    /// Nobody wants them any more: what has not begun is not begun, what has is told to stop, and nothing is
    /// said of it.
    Recall(Attempts),
    /// Their job is to end: the same, but how each ended is reported.
    Stop(Attempts),
    /// Another worker could begin them now: what has not begun is given back, see
    /// [`Outcome::GivenBack`](super::Outcome), and what has goes on.
    GiveBack(Attempts),
}

/// Calls of one class and one job that a worker is to run, in this order unless they wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderGroup {
    /// Job that the tasks belong to.
    pub submission: SubmissionId,
    /// Function that is called.
    pub function: FunctionId,
    /// Slots of the worker that each call takes up.
    pub slots: u32,
    /// Longest time for which a call may run: the worker ends it as failed then. `None`: forever.
    pub run_limit_ms: Option<u64>,
    /// What to call it with, one call each.
    pub tasks: Vec<TaskOrder>,
}

/// One attempt at one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// Index in the job.
    pub task: TaskIndex,
    /// From 1.
    pub attempt: u16,
    /// What to call the function with, in order.
    pub args: Vec<OrderArg>,
    /// Tasks that this worker holds, too, and that must have ended before.
    pub after: Vec<TaskIndex>,
    /// People may look at what it gives: its end brings a preview.
    pub is_shown: bool,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderArg {
    /// A value.
    One(OneArg),
    /// What several tasks give, as one argument. A list holds no lists: what reads a message would follow
    /// them as deep as they go.
    List(Vec<OneArg>),
    /// The outcome of one task: `Ok` of a value, or `Err` of a failure.
    Outcome(OneArg),
    /// The outcomes of several tasks, as one argument.
    Outcomes(Vec<OneArg>),
}

/// Where a worker finds a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OneArg {
    /// It is here, or in a blob on the parameter server.
    Value(Value),
    /// What another task gives that this worker holds, too: it waits for it there.
    Held(TaskIndex),
    /// What another task gave, which the worker asks the engine for: of small values of which an order would
    /// hold too many, and of one that is made again. Without it the call is given back.
    Kept(TaskIndex),
    /// Why a task gave nothing, among outcomes alone.
    Failure(TaskFailure),
}

/// Most bytes of arguments with which a worker is told of one task. Beyond it small values do not travel with
/// the order.
pub const MAX_ORDER_BYTES: usize = 32 << 20;

impl OrderArg {
    /// About as many bytes as it is in a message.
    pub fn wire_bytes(&self) -> usize {
        const HEADER_BYTES: usize = 8;
        let bytes = |part: &OneArg| match part {
            OneArg::Value(value) => HEADER_BYTES + value.inline_bytes(),
            OneArg::Held(_) | OneArg::Kept(_) => HEADER_BYTES,
            OneArg::Failure(failure) => 2 * HEADER_BYTES + failure.reason.len(),
        };
        let list = if let Self::List(_) | Self::Outcomes(_) = self { HEADER_BYTES } else { 0 };
        list + self.parts().iter().map(bytes).sum::<usize>()
    }

    /// The value, or those of the list.
    pub fn parts(&self) -> &[OneArg] {
        match self {
            Self::One(value) | Self::Outcome(value) => slice::from_ref(value),
            Self::List(values) | Self::Outcomes(values) => values,
        }
    }

    /// Its parts, to be filled in.
    pub fn parts_mut(&mut self) -> &mut [OneArg] {
        match self {
            Self::One(value) | Self::Outcome(value) => slice::from_mut(value),
            Self::List(values) | Self::Outcomes(values) => values,
        }
    }
}

/// Attempts of one job that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Job that the tasks belong to.
    pub submission: SubmissionId,
    /// Which attempt at each task: an older or newer one is not meant.
    pub tasks: Vec<Attempt>,
}

/// One attempt at one task of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Index in the job.
    pub task: TaskIndex,
    /// From 1.
    pub attempt: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_holds_values_and_no_lists_of_lists() {
        let value = OneArg::Value(Value::Inline(vec![7; 3].into()));
        let cases = [
            (OrderArg::One(value.clone()), 11),
            (OrderArg::One(OneArg::Held(TaskIndex(1))), 8),
            (OrderArg::List(vec![value, OneArg::Held(TaskIndex(2))]), 27),
        ];
        for (arg, bytes) in cases {
            assert_eq!(
                postcard::from_bytes::<OrderArg>(&postcard::to_stdvec(&arg).unwrap()),
                Ok(arg.clone())
            );
            assert_eq!(arg.wire_bytes(), bytes, "{arg:?}");
        }
        // As deep as a message is long, if a list could begin where a value does.
        let nested = [1, 1].repeat(1 << 20);
        let list = OrderArg::List(vec![OneArg::Held(TaskIndex(1))]);
        assert_eq!(postcard::from_bytes::<OrderArg>(&nested), Ok(list));
    }
}
