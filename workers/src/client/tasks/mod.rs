//! Jobs of general tasks: submitted, looked at, and what they gave.

mod error;
mod parts;
mod submit;
mod value;
mod view;

pub use error::TaskError;
