//! Settings of one worker.

use std::{collections::BTreeMap, num::NonZeroUsize, thread};

use syncline_kit::Device;
use syncline_ps::transport::TransportChoice;
use syncline_rpc::{EngineAddresses, Token};
use syncline_runtime::{ExecOptions, Runtime};

use super::{Throttle, WorkerError, machine_memory::machine_memory_bytes};
use crate::{client::Cluster, functions::Registry};

/// Settings of one worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Address of the engine, or of all engines.
    pub engine: EngineAddresses,
    /// Secret of the cluster, for engines and shards.
    pub token: Token,
    /// For people: shown in Redis and in tables.
    pub name: String,
    /// Loaded for the device that `exec` names. A worker without it takes no part in training and runs no
    /// ONNX models.
    pub runtime: Option<Runtime>,
    /// Device and threads, for trainings and for ONNX models alike.
    pub exec: ExecOptions,
    /// Whether each of several threads trains on its own part of a batch. Of no effect on a GPU and with one
    /// thread.
    pub split_batch: bool,
    /// Jobs that it trains for at the same time, each with what `exec` says for itself; at least 1.
    pub trainings: u32,
    /// Slows training iterations down, as on a slower machine; nothing else.
    pub throttle: Throttle,
    /// How parameters and gradients travel between this worker and the shards.
    pub transport: TransportChoice,
    /// Most samples that fit into memory at once: no policy gives this worker a larger batch, and one of a
    /// job with `micro_batch` is computed in pieces of so many.
    pub max_batch: Option<u32>,
    /// Functions that general tasks may call.
    pub registry: Registry,
    /// General tasks that run at the same time, at least 1.
    pub slots: u32,
    /// What general tasks may ask for.
    pub labels: BTreeMap<String, String>,
    /// Memory that general tasks may take together.
    pub memory_bytes: u64,
}

impl WorkerOptions {
    /// A worker that trains and runs ONNX models on the device that the runtime was loaded for, with the
    /// usual settings: one thread of the CPU, or the GPU, at full speed, and one model at a time.
    pub fn new(cluster: Cluster, runtime: Runtime) -> Self {
        Self { slots: 1, ..Self::for_calls(cluster, Registry::new()) }.with_runtime(runtime)
    }

    /// Lets this worker train and run ONNX models as well, on the device that the runtime was loaded for.
    #[must_use]
    pub fn with_runtime(self, runtime: Runtime) -> Self {
        let exec = ExecOptions { device: runtime.device(), ..self.exec };
        Self { runtime: Some(runtime), exec, ..self }
    }

    /// A worker that runs general tasks, as many at a time as the machine has cores, and does not train.
    pub fn for_calls(cluster: Cluster, registry: Registry) -> Self {
        Self {
            engine: cluster.engines,
            token: cluster.token,
            // Process ids of containers are alike.
            name: format!("worker-{}-{:04x}", std::process::id(), rand::random::<u16>()),
            runtime: None,
            exec: ExecOptions::default(),
            split_batch: false,
            trainings: 1,
            throttle: Throttle::default(),
            transport: TransportChoice::Auto,
            max_batch: None,
            registry,
            slots: default_slots(),
            labels: BTreeMap::new(),
            memory_bytes: machine_memory_bytes(),
        }
    }
}

/// Reads a label of a worker from a command line: `NAME=VALUE`. The error says what is wrong with it.
///
/// # Errors
/// What is wrong with it.
pub fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("--label takes NAME=VALUE, not `{text}`")),
    }
}

/// One slot for each core.
fn default_slots() -> u32 {
    u32::try_from(cores()).unwrap_or(u32::MAX)
}

/// Cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Threads for each of so many workers of one machine, so that they have its cores among them: at least 1.
pub fn threads_each(workers: usize) -> usize {
    (cores() / workers.max(1)).max(1)
}

/// Finds ONNX Runtime for a device, fetching it if need be, loads it, and tries it there. `say` gets a line
/// for whatever takes time. Blocks.
///
/// # Errors
/// E101 to E109 and E490 to E492 if a part is neither found nor fetched, E320, E321, E493 and E494 if it
/// cannot be used.
pub fn load_runtime(device: Device, say: &dyn Fn(&str)) -> Result<Runtime, WorkerError> {
    Ok(Runtime::load_for(device, &syncline_kit::for_device(device, say)?)?)
}
