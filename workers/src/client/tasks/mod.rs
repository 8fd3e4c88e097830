//! Jobs of general tasks: submitted, looked at, and what they gave.

mod as_completed;
mod error;
mod parts;
mod submit;
mod value;
mod view;

pub use as_completed::{AsCompleted, Completed};
pub use error::TaskError;
