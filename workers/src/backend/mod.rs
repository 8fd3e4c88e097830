//! ONNX Runtime behind a small door: the only module that imports `ort`.
//!
//! [`Runtime`] is the loaded library, one per process. [`Executable`] is one model ready to run, owned by one executor
//! thread: `run` borrows the inputs (nothing is copied) and lends the outputs. [`infer_types`] and [`simplify`] use
//! the library as a compiler: full shape inference and constant folding without any shape code of our own.
//!
//! A step of a small network takes about a millisecond, so the path of `run` avoids formatting, maps and copies;
//! it costs a few microseconds.

mod blocked;
mod error;
mod executable;
mod infer;
mod outputs;
mod row_sums;
mod runtime;
mod view;
mod writer;

pub(crate) use blocked::{Extent, WeightGradient};
pub use error::BackendError;
pub use executable::{ExecOptions, Executable, Optimize};
pub use infer::{Types, check_loads, infer_types, interface_types, simplify};
pub use outputs::Outputs;
pub use runtime::Runtime;
pub use view::TensorView;
