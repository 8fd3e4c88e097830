//! What an engine is told at its start.

use std::{net::SocketAddr, time::Duration};

use syncline_rpc::Token;

use crate::store::RedisAddress;

/// Settings of one engine process.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Secret of the cluster: whoever calls must hold it, and shards as well.
    pub token: Token,
    /// Address of the Redis server.
    pub redis: RedisAddress,
    /// Stable name of this engine: after a crash it takes its own lead back at once.
    pub instance: String,
    /// Shards of the parameter server.
    pub shards: u32,
    /// From when on a worker or a shard counts as lost.
    pub limits: Limits,
}

/// How long the engine waits for signs of life. Only time in which the engine itself was awake counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A worker that is not heard of for this long is dropped.
    pub worker_silence: Duration,
    /// A parameter shard that is not heard of for this long is lost, with the jobs it holds.
    pub shard_silence: Duration,
    /// A worker that has been busy with one task for this long, and for twenty times its longest so far, is
    /// dropped.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            worker_silence: Duration::from_secs(5),
            shard_silence: Duration::from_secs(30),
            stall: Duration::from_secs(300),
        }
    }
}
