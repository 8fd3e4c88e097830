//! Models as tools write them, checked, opened and trained; general tasks through a real engine; and the page
//! of the job file. One program, so that all tests run beside each other and it is linked once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "support/onnxruntime.rs"]
mod onnxruntime;

mod batch_axis;
mod calls;
mod check;
mod eval_form;
mod job_file_document;
mod opsets;
mod producers;
mod replacing;
mod selection_models;
mod submission;
mod tied_weights;
