//! Settings of one worker.

use syncline_engine::rpc::{EngineAddresses, Token};
use syncline_runtime::{ExecOptions, Runtime};

use super::Throttle;

/// Settings of one worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Address of the engine, or of all engines.
    pub engine: EngineAddresses,
    pub token: Token,
    /// For people: shown in Redis and in tables.
    pub name: String,
    /// Loaded for the device that `exec` names.
    pub runtime: Runtime,
    pub exec: ExecOptions,
    /// Whether each of several threads trains on its own part of a batch. Of no effect on a GPU and with one thread.
    pub split_batch: bool,
    pub throttle: Throttle,
    /// Most samples that fit into memory at once: no policy gives this worker a larger batch.
    pub max_batch: Option<u32>,
}
