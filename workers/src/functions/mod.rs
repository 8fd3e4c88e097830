//! Functions that a user's workers have, and graphs of calls to them.
//!
//! A [`Function`] is named once, in code that the client and the worker share; its types then hold on both
//! sides.

mod argument;
#[cfg(feature = "worker")]
mod context;
mod encoding;
#[cfg(feature = "worker")]
mod fault;
mod function;
#[cfg(feature = "worker")]
mod function_error;
mod graph_parts;
mod handle;
mod large_value;
#[cfg(feature = "worker")]
mod next;
mod onnx_model;
mod options;
#[cfg(feature = "worker")]
mod own_cluster;
#[cfg(feature = "worker")]
mod panics;
#[cfg(feature = "worker")]
mod preview;
#[cfg(feature = "worker")]
mod progress;
#[cfg(feature = "worker")]
mod registry;
#[cfg(feature = "worker")]
mod stop_flag;
#[cfg(feature = "worker")]
mod task_function;
mod task_graph;
#[cfg(feature = "worker")]
mod task_value;
mod tensor;
#[cfg(test)]
#[cfg(feature = "worker")]
mod tests;
mod wire_size;

pub use argument::{ArgumentError, CallArguments, IntoArgument};
#[cfg(feature = "worker")]
pub use context::Context;
pub(crate) use encoding::decode;
#[cfg(feature = "worker")]
pub(crate) use fault::CallFault;
pub use function::Function;
#[cfg(feature = "worker")]
pub use function_error::FunctionError;
pub(crate) use graph_parts::GraphParts;
pub use handle::{GraphNumber, OutcomeHandle, TaskHandle};
#[cfg(feature = "worker")]
pub(crate) use large_value::Salt;
pub(crate) use large_value::{ShardValues, ValueStore, is_lost, move_large_constants};
#[cfg(feature = "worker")]
pub use next::{InNext, InResult, IntoNext, Next, Plain, with_causes};
pub use onnx_model::{OnnxModel, RUN_MODEL};
pub use options::CallOptions;
#[cfg(feature = "worker")]
pub(crate) use own_cluster::OwnCluster;
#[cfg(feature = "worker")]
pub(crate) use progress::ProgressCell;
#[cfg(feature = "worker")]
pub(crate) use registry::{CallOutput, RegisteredFunction};
#[cfg(feature = "worker")]
pub use registry::{RegisteredTwice, Registry};
#[cfg(feature = "worker")]
pub(crate) use stop_flag::{StopFlag, Urgency};
#[cfg(feature = "worker")]
pub use task_function::{AsyncTaskFunction, Bare, TaskFunction, WithContext};
pub use task_graph::{InvalidCall, TaskGraph};
#[cfg(feature = "worker")]
pub(crate) use task_value::{task_salt, to_value};
pub use tensor::{Element, Tensor, TensorError};
#[cfg(feature = "worker")]
pub(crate) use wire_size::added_bytes;
pub(crate) use wire_size::wire_bytes;
