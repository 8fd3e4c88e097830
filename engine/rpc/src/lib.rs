//! Client side of the engine, without the engine and without Redis: greeting, reconnecting calls, the
//! services with their messages, and what these say of jobs and workers as types ([`status`]).

mod addresses;
mod aof_failure;
mod cause;
mod client;
mod codec;
mod connection;
mod dialer;
mod engine_fault;
mod engine_link;
pub mod folder;
mod greeters;
mod guarded;
mod handshake;
pub mod hello;
pub mod input;
mod job_stream;
mod leader_hint;
mod log_limit;
pub mod memory_files;
mod open_files;
mod outage_logger;
mod reconnecting;
mod refusals;
mod shard;
mod shard_position;
mod shard_registry;
pub mod status;
mod text_limits;
pub mod threads;
mod token;
mod worker;

pub use addresses::{EngineAddresses, InvalidAddress, is_of_every_machine};
pub use aof_failure::{AOF_HINT, is_aof_failure, is_of_full_disk};
pub use cause::Cause;
pub use client::{
    CheckpointParts, ClientService, ClientServiceClient, ClientServiceRequest, ClientServiceResponse,
    JobFields, JobRecord, ListedJobs, WorkerFields,
};
pub use codec::{MAX_FRAME_BYTES, Postcard};
pub use connection::{
    GREETING_TIMEOUT, Transport, accept, accept_noting, answer_calls, channel, connect, connect_to_shard,
    refuse_ourselves,
};
pub use engine_fault::{EngineFault, InactiveReason, LoadedJobs};
pub use engine_link::EngineLink;
pub use greeters::MAX_GREETING;
pub use guarded::{Guarded, describe};
pub use job_stream::{InvalidCursor, JobStream, StreamCursor, StreamEntry};
pub use log_limit::LogLimit;
pub use open_files::NoDescriptor;
pub use outage_logger::OutageLogger;
pub use reconnecting::{CallError, Reconnecting, within};
pub use refusals::Refusals;
pub use shard::{
    BarrierOrder, ClockRoster, ClosedBarrier, Collected, DigestRange, FolderGc, Forgotten, HeldJob,
    JobFolders, KnownJobs, OpenJob, PushProgress, Retention, Shard, ShardClient, ShardFault, ShardProgress,
    ShardRequest, ShardResponse, ShardState, SnapshotFile,
};
pub use shard_position::ShardPosition;
pub use shard_registry::{
    DiskState, ReplicaRole, ShardHello, ShardOrders, ShardPeer, ShardRegistry, ShardRegistryClient,
    ShardRegistryRequest, ShardRegistryResponse, StoppingShard,
};
pub use text_limits::{
    MAX_NAME_CHARS, MAX_RUNNING_TOLD, MAX_STOPPING_NAMED, MAX_TEXT_CHARS, MAX_UNREACHED_TOLD, cut, shortened,
};
pub use token::{InvalidToken, Token};
pub use worker::{
    Activity, EndedTasks, JobSetup, OrderCursor, Orders, PollReply, RegisterReply, UnreachedShard,
    WorkerHello, WorkerKey, WorkerService, WorkerServiceClient, WorkerServiceRequest, WorkerServiceResponse,
    hostname,
};
