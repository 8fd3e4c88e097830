//! The state machine of the engine.

mod wire;

pub use wire::{Assignment, Iterated, Outcome, TaskKey, TaskReport, Work};
