//! Functions that a user's workers have, and graphs of calls to them.
//!
//! A [`Function`] is named once, in code that the client and the worker share; its types then hold on both sides.

mod argument;
mod function;
mod handle;

pub use argument::{ArgumentError, CallArguments, IntoArgument};
pub use function::Function;
pub use handle::{GraphNumber, TaskHandle};
