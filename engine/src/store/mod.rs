//! The only place that talks to Redis.
//!
//! One fenced commit per job and turn, leadership, loading, the registry of live processes, and what people
//! see.

mod address;
mod aof_rewrites;
mod batch;
mod claim;
mod connection;
mod crashes;
mod erase;
mod error;
mod found_jobs;
mod graph_texts;
mod job_list;
pub mod keys;
mod leadership;
mod left_jobs;
mod redis_info;
mod redis_load;
mod redis_memory;
mod redis_setup;
mod redis_store;
mod registry;
mod role_notes;
mod stored_job;
mod streams;

pub use address::{RedisAddress, redacted};
pub use aof_rewrites::AofRewrites;
pub use batch::{CommitMode, Fence, MemoryLimit};
pub use claim::Claimed;
pub use erase::LastWriter;
pub use error::StoreError;
pub use job_list::Expiry;
pub use leadership::{Beyond, LeaderAt, OwnLease, SeenLease};
pub use left_jobs::LastLeader;
pub use redis_load::RedisLoad;
pub use redis_memory::RedisMemory;
pub use redis_setup::RedisRisk;
pub use redis_store::{Committed, RedisStore};
pub use role_notes::{RoleNote, RoleNotes};
