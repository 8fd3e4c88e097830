//! Functions that a user's workers have, and graphs of calls to them.
//!
//! A [`Function`] is named once, in code that the client and the worker share; its types then hold on both sides.

mod argument;
mod function;
mod graph_parts;
mod handle;
mod large_value;
mod options;

pub use argument::{ArgumentError, CallArguments, IntoArgument};
pub use function::Function;
pub(crate) use graph_parts::GraphParts;
pub use handle::{GraphNumber, TaskHandle};
pub(crate) use large_value::{Salt, ShardValues, ValueStore, move_large_constants, task_salt, to_value};
pub use options::CallOptions;
