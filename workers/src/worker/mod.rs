//! A worker: registers, receives tasks, executes them, and reports in the background.
//!
//! With ONNX Runtime it trains, one iteration after the other, and runs ONNX models as general tasks. It runs
//! general tasks, those of its functions as well, as many at a time as it has slots. The control side is
//! async and small; the executor is one thread that owns the ONNX sessions and the tensor connections and
//! never waits for the engine while it has a task in hand. A worker that was dropped starts a new session
//! under a new incarnation. One that trains for several jobs at a time has all of this once for each.

mod batch_mean;
mod batch_pieces;
mod batch_rows;
mod calls;
mod class_counts;
mod control;
mod data_loader;
mod device_watch;
mod draws;
mod error;
mod evaluation;
mod executor;
mod executor_end;
mod iteration;
mod job;
mod load;
mod local_steps;
mod loss_scale;
mod machine_memory;
mod metrics;
mod models;
mod options;
mod parameters;
mod piece_mean;
mod polling;
mod program;
mod replicas;
mod report;
mod session;
mod shared_pages;
mod step_health;
mod step_push;
mod task_timer;
mod task_tracker;
#[cfg(test)]
mod tests;
mod throttle;
mod training_slots;

pub use error::WorkerError;
pub use machine_memory::{gpu_memory, machine_memory_bytes, offered_memory};
pub(crate) use metrics::RunningMetrics;
pub use options::{WorkerOptions, cores, label, load_runtime, threads_each};
pub use program::{Worker, WorkerBuilder};
pub use throttle::Throttle;
pub use training_slots::run;
