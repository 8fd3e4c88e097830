//! The parameter server: shards, optimizers, push and pull, barriers, blobs, snapshots.
//!
//! A job's parameters are one flat array of f32, cut over the shards by
//! [`ElementRange::of_shard`](syncline_scheduler::spec::ElementRange::of_shard). Each `syncline ps` process
//! serves one shard of every job. The engine gives orders over tarpc; workers push and pull beside it, with a
//! small header and raw bytes on a socket of their own.
//!
//! - [`optim`]: the update rules, as fused loops.
//! - [`shard`]: what one process keeps of one job, and the rules of pushing, pulling and barriers. No
//!   network.
//! - [`transport`]: what carries the bytes: TCP, a unix socket, or shared memory.
//! - [`codec`]: how a gradient travels in fewer bytes, as pure functions.
//! - [`rows`]: tables of which only rows travel, as pure functions.
//! - [`wire`]: frames of the tensor connection, as pure functions.
//! - [`server`]: the process: listener, tensor threads, control service, blobs, snapshots.
//! - [`checkpoint_file`]: a checkpoint as one file, for another job or people.
//! - [`checkpoint_parts`]: checkpoints on the disks of shards, read without these.
//! - [`client`]: what workers hold; reconnects and resumes.
//!
//! Absent on purpose: ONNX, Redis, and every decision about who should push or wait.

#[cfg(target_endian = "big")]
compile_error!("tensors travel as the memory of little-endian f32; a big-endian machine would need a copy");

pub mod checkpoint_file;
pub mod checkpoint_parts;
pub mod client;
pub mod codec;
pub mod content;
mod error;
mod free_memory;
pub mod optim;
pub mod rows;
pub mod server;
pub mod shard;
mod tensor_header;
pub mod transport;
#[cfg(test)]
#[path = "../../tests/waiting/threads.rs"]
mod waiting;
pub mod wire;

pub use error::PsError;
