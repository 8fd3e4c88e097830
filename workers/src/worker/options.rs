//! Settings of one worker.

use syncline_engine::rpc::{EngineAddresses, Token};
use syncline_kit::Device;
use syncline_runtime::{ExecOptions, Runtime};

use super::{Throttle, WorkerError};
use crate::client::Cluster;

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

impl WorkerOptions {
    /// The usual settings: one thread of the CPU, or the GPU that `exec.device` is set to, at full speed.
    pub fn new(cluster: Cluster, runtime: Runtime) -> Self {
        Self {
            engine: cluster.engines,
            token: cluster.token,
            name: format!("worker-{}", std::process::id()),
            runtime,
            exec: ExecOptions::default(),
            split_batch: false,
            throttle: Throttle::default(),
            max_batch: None,
        }
    }
}

/// Finds ONNX Runtime for a device, fetching it if need be, loads it, and tries it there. `say` gets a line for whatever takes
/// time. Blocks.
pub fn load_runtime(device: Device, say: &dyn Fn(&str)) -> Result<Runtime, WorkerError> {
    Ok(Runtime::load_for(device, &syncline_kit::for_device(device, say)?)?)
}
