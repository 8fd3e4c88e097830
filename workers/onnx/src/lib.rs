//! ONNX models as plain data: read them, check them, build them. Nothing here runs a model.
//!
//! A model file is untrusted input. [`parse`] is the only way in: it bounds sizes before anything is
//! allocated for them, refuses external data (which would let a model read any file of the machine:
//! [`with_external_data`] leaves to its caller what is read), checks that every value is
//! produced exactly once and before it is used, and leaves the nodes in topological order, so that every
//! later pass may simply walk them. The protobuf structs in [`proto`] are written by hand: no protoc at build
//! time.
//!
//! [`Graph`] is a graph with an index, on which passes rewrite models. [`GraphBuilder`] writes small forward
//! models by hand on it, for tests, examples, [`mlp`] and [`counting`].
//!
//! [`infer_types`] and its neighbors tell the types of all values. The shape rules of the operators are those
//! of an ONNX implementation behind the trait [`Compiler`]; this crate has none of its own.

#![cfg_attr(test, allow(clippy::type_complexity, reason = "tables of tests are tuples in slices"))]

mod attributes;
mod builder;
mod compiler;
mod counting;
mod declared;
mod element;
mod error;
mod external;
mod graph;
mod infer;
mod inline;
mod mlp;
mod parse;
pub mod proto;
mod scan;
mod tensor;
mod view;
mod weight_gradient;

pub use attributes::{attr_float, attr_graph, attr_int, attr_ints, attr_string};
pub use builder::GraphBuilder;
pub use compiler::{CompileError, Compiler, Types};
pub use counting::counting;
pub use declared::DeclaredTypes;
pub use element::{Dim, ElementType, TensorType};
pub use error::OnnxError;
pub use external::{ExternalData, with_external_data};
pub use graph::{Graph, NodeId, ValueId, captured, rename_reads};
pub use infer::{check_loads, declare_every_value, folded_value_types, infer_types};
pub use inline::inline_functions;
pub use mlp::{SplitMix64, mlp};
pub use parse::{MAX_ELEMENTS, MAX_MODEL_BYTES, parse};
pub use proto::ModelProto;
pub use view::TensorView;
pub use weight_gradient::{Extent, WeightGradient};
