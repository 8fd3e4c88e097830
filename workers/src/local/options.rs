//! What a local cluster is made of.

use std::path::PathBuf;

use syncline_runtime::Device;

use crate::worker::Throttle;

/// What to start.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// How each worker is slowed down; their number is the number of workers.
    pub workers: Vec<Throttle>,
    /// Shards of the parameter server, none of them with a standby: 1 at least.
    pub shards: u32,
    /// A Redis server to use instead of one of our own.
    pub redis: Option<String>,
    /// Where everything is kept; `None`: a temporary folder that goes with the cluster.
    pub state_dir: Option<PathBuf>,
    /// What every worker computes on.
    pub device: Device,
    /// Threads on which every worker computes; `None`: the cores of the machine, shared among those it
    /// starts with.
    pub threads: Option<usize>,
    /// Jobs that every worker trains for at the same time.
    pub trainings: u32,
}

impl LocalOptions {
    /// So many workers at full speed.
    pub fn workers(workers: usize) -> Self {
        Self { workers: vec![Throttle::default(); workers], ..Self::default() }
    }
}

/// Four workers and two shards, on what this machine has.
impl Default for LocalOptions {
    fn default() -> Self {
        let (redis, state_dir, device) = (None, None, Device::Cpu);
        let (workers, threads) = (vec![Throttle::default(); 4], None);
        Self { workers, shards: 2, redis, state_dir, device, threads, trainings: 1 }
    }
}
