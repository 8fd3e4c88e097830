//! The only place that talks to Redis.
//!
//! One fenced commit per job and turn, leadership, loading, the registry of live processes, and what people see.

mod address;
mod batch;
mod connection;
mod crashes;
mod error;
mod found_jobs;
mod job_list;
pub mod keys;
mod leadership;
mod let_go;
mod redis_store;
mod registry;
mod stored_job;
mod streams;

pub use address::{RedisAddress, redacted};
pub use batch::CommitMode;
pub use error::StoreError;
pub use job_list::Expiry;
pub use redis_store::{Claimed, Committed, RedisStore};
