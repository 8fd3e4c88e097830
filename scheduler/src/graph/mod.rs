//! The dataflow graph: tasks, their states and their edges.

mod task;

pub use task::{Holder, IllegalMove, InvalidTaskId, TaskEvent, TaskId, TaskState};
