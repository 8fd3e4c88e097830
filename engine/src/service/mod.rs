//! The engine as a service: one loop that decides, everything else moves messages.

mod attach;
mod blob_gc;
mod clock;
mod context;
mod decision_loop;
mod dispatcher;
mod job_log;
mod liveness;
mod loading;
mod message;
mod run;
mod sessions;
mod shards;
mod store_outage;

pub use run::{Engine, EngineError, EngineHandle, EngineOptions, Limits};
