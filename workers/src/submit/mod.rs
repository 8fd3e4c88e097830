//! From what a user writes to a job that is ready to be uploaded: the graph in Rust or in a file, the
//! training graph derived from the forward model, the data checked.
//!
//! Everything that can be refused is refused here, on the client, before anything is stored anywhere.

mod balanced;
#[cfg(feature = "job-file")]
mod change;
mod checkpoint;
mod class_split;
mod compression;
mod data;
mod data_parts;
mod decay;
mod error;
mod eval_mode;
#[cfg(feature = "job-file")]
mod file;
#[cfg(feature = "job-file")]
mod file_weights;
#[cfg(feature = "train")]
mod first_weights;
#[cfg(feature = "train")]
mod forward;
mod forward_loss;
mod graph;
mod groups;
mod input_scaling;
mod label_width;
mod model;
mod model_file;
pub(crate) mod name_list;
mod name_or_table;
#[cfg(feature = "train")]
mod open_sizes;
mod optimizer;
mod other_output;
mod paths;
mod prepare;
mod read;
mod ready;
mod resume;
mod standardize;
mod submitted;
#[cfg(feature = "job-file")]
mod suggestion;
mod training;
#[cfg(feature = "train")]
mod variants;

#[cfg(feature = "job-file")]
pub use change::FieldChange;
pub use data_parts::DataParts;
pub use error::SubmitError;
#[cfg(feature = "job-file")]
pub use file::JobFile;
#[cfg(feature = "train")]
pub use forward::{prepare, untouched};
#[cfg(feature = "worker")]
pub(crate) use forward_loss::ForwardLoss;
pub use graph::{GraphNode, JobGraph, NodeHandle, NodeWork};
pub use groups::ParameterGroup;
pub use model::{ByteSource, FirstValues, Model};
pub use model_file::{read_model, with_weights_beside};
pub use prepare::{MissingKernel, PreparedJob, prepare_ready};
pub(crate) use read::read;
pub use training::{ParamList, Settings, Training};
#[cfg(feature = "train")]
pub use variants::JobVariants;
