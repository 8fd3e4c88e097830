//! What a trained model says of samples: of those of its job, or of others.
//!
//! [`Predictor::open`] takes what [`Client::trained_job`](crate::client::Client::trained_job) has fetched,
//! and computes on this machine: the forward model for predictions, and the graph with which the job was
//! evaluated for its loss, so that the figures are those that `status` shows for the same samples.

mod classes;
mod error;
mod figures;
mod float_ids;
mod labels;
mod options;
mod outputs;
mod predictor;
#[cfg(test)]
mod tests;
mod values;

pub use classes::ClassFigures;
pub use error::PredictError;
pub use figures::Figures;
pub use labels::LabelFigures;
pub use options::{LabelUse, PredictOptions, Samples};
pub use outputs::Output;
pub use predictor::{Predicted, Predictor};
pub use values::{TargetFigures, ValueFigures};
