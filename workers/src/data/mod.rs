//! Data sets: small enough for memory, read once, checked completely.
//!
//! [`Dataset::open`] reads what a [`DataSpec`](syncline_scheduler::spec::DataSpec) names: CSV or IDX (the format of
//! MNIST), plain or `.gz`. Files are untrusted: sizes are bounded before anything is allocated for them, every number
//! is checked, and an error names the file, the line and the column. Afterwards no batch can be wrong: all features
//! are finite, all classes are in range.
//!
//! A training step calls [`Dataset::gather`], which copies the rows of one batch into a [`Batch`] that is used again
//! and again: no allocation once it has grown to the largest batch.

mod batch;
mod csv;
mod dataset;
mod error;
mod file;
mod idx;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use dataset::{Dataset, Labels, Target};
pub use error::DataError;
pub use file::{MAX_ELEMENTS, MAX_FILE_BYTES, digest};
