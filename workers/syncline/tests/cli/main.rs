//! The binary `syncline` as people use it: real processes, real Redis, real ONNX Runtime.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

// Tests run in the order of their names, and this one takes as long as all others together.
mod another_workspace;
mod chaos;
mod checks;
mod data;
mod export;
mod general_tasks;
mod job;
mod json;
mod model;
mod model_tasks;
mod operate;
mod planning;
mod refusals;
mod rig;
mod transports;
mod up;
