//! Whole jobs on a cluster in the process of the tests, and the page of error codes. One program, so that all tests run
//! beside each other and it is linked once.

#![cfg(feature = "local")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../tests/support/onnxruntime.rs"]
mod onnxruntime;

mod batch_axis;
mod errors_document;
mod exported_models;
mod function_cluster;
mod loss_scale;
mod model_tasks;
mod named_inputs;
mod refusals;
mod running_statistics;
mod sparse_rows;
mod task_jobs;
