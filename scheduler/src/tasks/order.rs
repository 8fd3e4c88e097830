//! What a worker is told to do with general tasks.

use serde::{Deserialize, Serialize};

use super::{FunctionId, TaskIndex, Value};
use crate::ids::JobId;

/// One entry of what a worker is told, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    Run(OrderGroup),
    /// Nobody wants them any more: what has not begun is not begun, what has is told to stop, and nothing is said of it.
    Recall(Attempts),
    /// Their job is to end: the same, but how each ended is reported.
    Stop(Attempts),
    /// Another worker could begin them now: what has not begun is given back, see [`Outcome::NotBegun`](super::Outcome), and
    /// what has goes on.
    GiveBack(Attempts),
}

/// Calls of one class and one job that a worker is to run, in this order unless they wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderGroup {
    pub job: JobId,
    /// Tells the job from others of the same name.
    pub nonce: u32,
    pub function: FunctionId,
    pub slots: u32,
    pub run_limit_ms: Option<u64>,
    pub tasks: Vec<TaskOrder>,
}

/// One attempt at one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOrder {
    pub task: TaskIndex,
    /// From 1.
    pub attempt: u16,
    pub args: Vec<OrderArg>,
    /// Tasks that this worker holds, too, and that must have ended before.
    pub after: Vec<TaskIndex>,
    /// People may look at what it gives: its end brings a preview.
    pub is_shown: bool,
}

/// Where a worker finds an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderArg {
    Value(Value),
    /// What another task gives that this worker holds, too: it waits for it there.
    Held(TaskIndex),
    List(Vec<OrderArg>),
}

/// Most bytes of arguments with which a worker is told of one task.
pub const MAX_ORDER_BYTES: usize = 32 << 20;

impl OrderArg {
    /// About as many bytes as it is in a message.
    pub fn wire_bytes(&self) -> usize {
        const HEADER_BYTES: usize = 8;
        HEADER_BYTES
            + match self {
                Self::Value(value) => value.inline_bytes(),
                Self::Held(_) => 0,
                Self::List(args) => args.iter().map(Self::wire_bytes).sum(),
            }
    }
}

/// Attempts of one job that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    pub job: JobId,
    pub nonce: u32,
    pub tasks: Vec<(TaskIndex, u16)>,
}
