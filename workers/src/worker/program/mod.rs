//! A program of a user that is a worker for general tasks: its functions, and the flags that it takes.

mod builder;
mod entry;
mod flags;

pub use builder::{Worker, WorkerBuilder};
