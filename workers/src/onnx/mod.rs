//! ONNX models as plain data: read them, check them, build them. Nothing here runs a model.
//!
//! A model file is untrusted input. [`parse`] is the only way in: it bounds sizes before anything is allocated for
//! them, refuses external data (which would let a model read any file of the machine), checks that every value is
//! produced exactly once and before it is used, and leaves the nodes in topological order, so that every later pass
//! may simply walk them. The protobuf structs in [`proto`] are written by hand: no protoc at build time.
//!
//! [`GraphBuilder`] writes small forward models by hand, for tests, examples and [`mlp`].

mod attributes;
mod build;
mod element;
mod error;
mod file;
mod mlp;
mod parse;
pub mod proto;
mod scan;
mod tensor;

pub use attributes::{attr_float, attr_int, attr_ints, attr_string};
pub use build::GraphBuilder;
pub use element::{Dim, ElementType, TensorType};
pub use error::OnnxError;
pub use file::read;
pub use mlp::{SplitMix64, mlp};
pub use parse::{MAX_ELEMENTS, MAX_MODEL_BYTES, parse};
pub use proto::ModelProto;
