//! Live workers, and engines about themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use syncline_scheduler::ids::Incarnation;

use super::text::{self, UnknownFields, parsed, printed};
use crate::rpc::WorkerFields;

/// One worker that is connected, whether it works on a job or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveWorker {
    #[serde(deserialize_with = "parsed", serialize_with = "printed")]
    pub id: Incarnation,
    pub name: String,
    pub host: String,
    /// `cpu`, or `cuda:N`.
    pub device: String,
    /// Of its process; 0: not known.
    pub pid: u32,
    /// Tasks that it has been leased.
    pub holding: u32,
    /// What one of them waits for, in words.
    pub blocked_on: Option<String>,
    /// How long it has been busy with the task that it runs.
    pub running_ms: u64,
    /// Since it was heard last.
    pub silent_ms: u64,
}

impl LiveWorker {
    /// From the fields of its hash in Redis.
    pub fn read(fields: &WorkerFields) -> Result<Self, UnknownFields> {
        text::read("a worker", fields)
    }
}

/// An engine about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Release.
    pub version: String,
    pub address: String,
    /// Name under which it takes the lead.
    pub instance: String,
    /// Address of the Redis server, without password.
    pub redis: String,
    /// Number of parameter shards that it wants.
    pub shards: u32,
    /// Term of its lead; `None`: it does not lead.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// Why it does not lead, and the address of the engine that does.
    #[serde(default)]
    pub idle: Option<String>,
    #[serde(default)]
    pub leader: Option<String>,
    /// What is wrong with Redis.
    #[serde(default)]
    pub store_trouble: Option<String>,
    #[serde(default)]
    pub shards_present: u32,
    #[serde(default)]
    pub shard_trouble: Option<String>,
    /// Live workers.
    #[serde(default)]
    pub workers: u32,
    /// Numbers of their processes, with spaces between; 0: not known.
    #[serde(default)]
    pub worker_pids: String,
}

impl EngineStatus {
    /// From what it answers.
    pub fn read(fields: &BTreeMap<String, String>) -> Result<Self, UnknownFields> {
        text::read("itself", fields)
    }
}
