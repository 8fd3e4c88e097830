//! Whole jobs on a cluster in the process of the tests. One program, so that all tests run beside each other
//! and it is linked once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../workers/tests/support/onnxruntime.rs"]
mod onnxruntime;
#[path = "../summing/mod.rs"]
mod summing;
#[path = "../waiting/mod.rs"]
mod waiting;

mod augmentation;
mod batch_axis;
mod completion;
mod documented_test;
mod dropout;
mod exported_models;
mod function_cluster;
mod groups;
mod kept_jobs;
mod loss_scale;
mod micro_batches;
mod model_tasks;
mod named_inputs;
mod outcomes;
mod refusals;
mod running_statistics;
mod sparse_rows;
mod task_jobs;
mod tf32;
mod trained;
