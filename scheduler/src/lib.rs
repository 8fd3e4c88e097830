//! The pure core of the scheduler: no I/O, no clock, no randomness that is not passed in.
//!
//! [`core::Core`] is the one state machine of the engine: inputs go in, effects come out, and everything that
//! can influence a later decision is one serialisable value per job. The shell around it lives in
//! `syncline-engine`.

#![cfg_attr(test, allow(clippy::type_complexity, reason = "tables of tests are tuples in slices"))]

pub mod balance;
pub mod core;
pub mod fault_code;
pub mod graph;
pub mod ids;
pub mod predict;
pub mod samples;
pub mod sim;
pub mod spec;
pub mod suggestion;
pub mod sync;
pub mod tasks;
