//! The wire: greeting, codec, connections, and the services that travel over them.

mod client;
mod codec;
mod connection;
pub mod hello;
mod reconnecting;
mod refusals;
mod shard;
mod token;
mod worker;

pub use client::{
    ClientService, ClientServiceClient, ClientServiceRequest, ClientServiceResponse, EngineFault, JobFields,
    JobView, WorkerFields,
};
pub use codec::{MAX_FRAME_BYTES, Postcard};
pub use connection::{GREETING_TIMEOUT, Transport, accept, answer_calls, channel, connect};
pub use reconnecting::{CallError, Reconnecting, within};
pub use refusals::Refusals;
pub use shard::{
    BarrierOrder, ClockOrder, ClosedBarrier, Collected, HeldJob, OpenJob, SealAnswer, Shard, ShardClient,
    ShardFault, ShardRequest, ShardResponse, ShardState, SnapshotReport,
};
pub use token::{InvalidToken, Token};
pub use worker::{
    Activity, Enrolment, JobTicket, Orders, Registered, ShardHello, ShardRegistry, ShardRegistryClient,
    ShardRegistryRequest, ShardRegistryResponse, WorkerHello, WorkerService, WorkerServiceClient,
    WorkerServiceRequest, WorkerServiceResponse, hostname,
};
