//! From what a user writes to a submitted job: the graph in Rust or in a file, the training graph derived from the
//! forward model, the data checked, the blobs uploaded.
//!
//! Everything that can be refused is refused here, on the client, before anything is stored anywhere.

mod data;
mod error;
mod file;
mod graph;
mod model_file;
mod optimizer;
mod prepare;
mod upload;

pub use error::SubmitError;
pub use file::JobFile;
pub use graph::{JobGraph, Model, ParamList, Settings, Training};
pub use model_file::read_model;
pub use prepare::{MissingKernel, PreparedJob, prepare};
pub use upload::{submit, submit_replacing};
