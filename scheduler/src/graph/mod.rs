//! A task of the dataflow graph: its id, its states, and the moves between them. Edges are kept with the
//! record of each task, see `core::records`.

mod task;

pub use task::{Holder, InvalidTaskId, TaskEvent, TaskId, TrainingTaskState};
