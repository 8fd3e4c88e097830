//! `syncline sweep`: many trainings of one job file with other settings, the bad ones stopped early, in one
//! table.
//!
//! What is tried (`values`, `trials`), who is stopped (`halving`), what counts (`measure`) and the order at
//! the end (`outcome`) are pure; `conduct` asks the engine, and keeps what is `seen`. A trial is a job like
//! any other: the cluster alone remembers what has become of it.

mod command;
mod conduct;
mod display;
mod dry_run;
mod halving;
mod measure;
mod outcome;
mod plan;
mod report;
mod room;
mod seen;
mod spread;
mod there;
mod trials;
mod trouble;
mod values;

pub(crate) use command::{SweepArgs, run};
