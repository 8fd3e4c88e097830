//! ONNX Runtime behind a small interface: the only crate that imports `ort`.
//!
//! [`Runtime`] is the loaded library, one per process. [`Executable`] is one model ready to run, owned by one
//! executor thread: `run` borrows the inputs (nothing is copied) and lends the outputs. As a
//! [`Compiler`](syncline_onnx::Compiler) the library infers shapes and folds constants, without any shape
//! code of our own.
//!
//! [`Resident`] is a model whose state stays on the device from run to run.
//!
//! [`Runtime::load_for`] and [`ExecOptions::device`] bring a model to a GPU; [`Placement`] tells what became
//! of it.
//!
//! A step of a small network takes about a millisecond, so the path of `run` avoids formatting, maps and
//! copies; it costs a few microseconds.

// The rig of the tests is that of other crates as well, which call this one by its name.
#[cfg(test)]
extern crate self as syncline_runtime;

mod bare;
mod cuda_calls;
mod cuda_form;
mod denylist;
mod device;
mod driver;
mod error;
mod executable;
mod infer;
mod interrupt;
mod nchwc;
#[cfg(test)]
#[path = "../../tests/support/onnxruntime.rs"]
mod onnxruntime;
mod outputs;
mod page_locks;
mod pinned;
mod placed;
mod placement;
mod resident;
mod rewriting;
mod runtime;
mod scatter_add;
mod self_test;
mod session;
mod shortage;
pub mod stage;
mod staging;
mod thread_pool;
mod view;

pub use error::BackendError;
pub use executable::Executable;
pub use infer::lacks_kernel;
pub use interrupt::Interrupt;
pub use outputs::Outputs;
pub use page_locks::{HostMemory, PageLock};
pub use placed::{OutputMemory, OutputPlace};
pub use placement::Placement;
pub use resident::{KeptValue, ReportedValue, Resident};
pub use runtime::Runtime;
pub use session::{ExecOptions, Optimize};
pub use syncline_kit::Device;
pub use syncline_onnx::TensorView;
