//! The engine as a service: one loop that decides, everything else moves messages.

mod active;
mod attaching;
mod calls;
mod clock;
mod collecting;
mod effects;
mod loading;
mod message;
mod run;
mod sessions;
mod shards;
mod told;
mod trouble;
mod watching;

pub use run::{Engine, EngineError, EngineHandle, EngineOptions, Limits};
