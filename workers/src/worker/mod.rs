//! A worker: registers, receives tasks, executes them one after the other, and reports in the background.
//!
//! The control side is async and small; the executor is one thread that owns the ONNX sessions and the tensor
//! connections and never waits for the engine while it has a task in hand. A worker that was dropped starts a new life
//! under a new incarnation.

mod busy;
mod control;
mod error;
mod executor;
mod feed;
mod job;
mod lanes;
mod load;
mod loss_scale;
mod merge;
mod options;
mod pace;
mod parameters;
mod report;
mod round;
mod scores;
#[cfg(test)]
mod tests;

pub use control::run;
pub use error::WorkerError;
pub use options::WorkerOptions;
pub use pace::Pace;
