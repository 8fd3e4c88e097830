//! `syncline metrics`: how trainings learn, alone or side by side, as numbers, as a picture, and as files of
//! others' tools.

mod command;
mod comparison;
mod csv;
mod files;
mod follow;
mod one_job;
mod sources;
mod tensorboard;
mod training;

pub(crate) use command::{MetricsArgs, run};
pub(crate) use training::{Training, that_count};

#[cfg(test)]
pub(crate) use training::tests;
