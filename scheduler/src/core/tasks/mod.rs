//! Jobs of general tasks.

mod job;

pub use job::TaskJob;
