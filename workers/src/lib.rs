//! The room that computes: ONNX training graphs on ONNX Runtime, data sets, the worker, and how jobs are submitted.

pub mod apart;
pub mod batch_axis;
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod data;
#[cfg(feature = "local")]
pub mod local;
pub mod submit;
pub mod worker;

pub use syncline_autodiff as autodiff;
pub use syncline_onnx as onnx;
pub use syncline_runtime as backend;
