//! General tasks: calls of the functions that a user's workers have, and trainings, in one graph per job that
//! may grow while it runs.
//!
//! A task has a class, which says what is to be done and by which rules, arguments, which are values or what
//! other tasks give, and tasks that must have ended before. These are the types that are sent and stored; the
//! state machine on them is in `core::tasks`.

mod bytes;
mod capacity;
mod class;
mod graph_digest;
mod new_task;
mod order;
mod preview;
mod report;
mod resources;
mod running;
mod state;
mod task_failure;
mod training;
mod value;
mod view;

pub use bytes::Bytes;
pub use capacity::Capacity;
pub use class::{Backoff, FunctionId, Needs, OnFailure, Rules, TaskClass, Work};
pub use graph_digest::{GraphDigest, InvalidDigest};
pub use new_task::{Arg, ClassIndex, GraphReceipt, GraphSpec, NewTask, TaskIndex, TaskRef};
pub use order::{Attempt, Attempts, MAX_ORDER_BYTES, OneArg, Order, OrderArg, OrderGroup, TaskOrder};
pub use preview::Preview;
pub use report::{
    Failure, FailureCause, Gives, LostValues, MAX_LOST_VALUES, Outcome, ReportGroup, Spawned, TaskEnd,
};
pub use resources::{InvalidMemorySize, MemorySize, Resources};
pub use running::{Progress, RunningCall, wait_to_store};
pub use state::{InvalidState, TaskState};
pub use task_failure::TaskFailure;
pub use training::{InvalidTraining, PreparedTraining, TrainedWeights, TrainingChanges};
pub use value::{BlobValue, MAX_INLINE_BYTES, Value};
pub use view::{TaskQuery, TaskView};

/// Tasks whose states make one field in Redis.
pub const WINDOW_TASKS: u32 = 256;
