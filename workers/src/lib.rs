//! Data sets, the worker, a local cluster, and how jobs are submitted.
//!
//! By default this is what a client needs, without ONNX Runtime. Feature `train` adds deriving and checking
//! of training graphs, `worker` the [`worker`], `local` a whole cluster in one process, [`local`].

#![cfg_attr(test, allow(clippy::type_complexity, reason = "tables of tests are tuples in slices"))]

#[cfg(feature = "train")]
pub mod batch_axis;
mod blocking;
mod causes;
#[cfg(feature = "train")]
pub mod check;
pub mod client;
pub mod data;
pub mod export;
pub mod functions;
#[cfg(feature = "train")]
pub mod isolation;
#[cfg(feature = "local")]
pub mod local;
pub mod normalization;
#[cfg(all(test, feature = "worker"))]
#[path = "../tests/support/onnxruntime.rs"]
mod onnxruntime;
mod place_file;
#[cfg(feature = "worker")]
pub mod predict;
mod printable;
#[cfg(feature = "worker")]
pub mod process;
mod span;
pub mod submit;
#[cfg(all(test, feature = "worker"))]
#[path = "../../tests/waiting/threads.rs"]
mod waiting;
#[cfg(feature = "worker")]
pub mod worker;

pub use blocking::blocking;
pub use causes::error_chain;
pub use place_file::place_file;
pub use printable::{is_invisible, printable};
pub use span::span;
