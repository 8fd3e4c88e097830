//! Jobs of general tasks: submitted, looked at, and what they gave.

mod as_completed;
mod constants;
mod error;
mod get_all;
mod graph_run;
mod parts;
mod replacing;
mod submit;
mod value;
mod view;

pub use as_completed::{AsCompleted, Completed};
pub use error::TaskError;
pub use graph_run::GraphRun;
