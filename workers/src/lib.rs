//! The room that computes: ONNX training graphs on ONNX Runtime, data sets, the worker, and how jobs are submitted.

pub mod apart;
pub mod autodiff;
pub mod backend;
#[cfg(feature = "cli")]
pub mod cli;
pub mod data;
#[cfg(feature = "local")]
pub mod local;
pub mod onnx;
pub mod submit;
pub mod worker;
