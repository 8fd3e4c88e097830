//! The binary `syncline` as people use it: real processes, real Redis, real ONNX Runtime.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chaos;
mod checkpoint_parts;
mod checks;
mod dashboard;
mod data;
mod deployment;
mod errors_document;
mod export;
mod general_tasks;
mod hangup;
mod job;
mod jobs_of_others;
mod json;
mod labels;
mod machine;
mod metrics;
mod model;
mod model_process;
mod model_tasks;
mod normalized_inputs;
mod operate;
mod planning;
mod predict;
mod refusals;
mod rig;
mod submit;
mod sweep;
mod table_inputs;
mod tables;
mod transports;
mod up;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod worker_end;

const BINARY: &str = env!("CARGO_BIN_EXE_syncline");
