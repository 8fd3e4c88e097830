//! What a worker says of itself.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ProcessId, RegistrationId},
    tasks::Capacity,
};

/// A worker as it is stored and shown. Nearly all of it it says itself in the message `WorkerHello`, whose
/// fields are never left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// As people call it; need not be unique.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// `cpu` or `cuda:N`, where it computes models.
    pub device: String,
    /// Of its process; 0: not known.
    #[serde(default)]
    pub pid: u32,
    /// What its process is known by, the same for all training slots of it; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// Which of the training slots of its process it is, from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub training_slot: u32,
    /// Most samples that fit into its memory at once, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<u32>,
    /// Whether it takes part in training: it has ONNX Runtime.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub trains: bool,
    /// What it offers to general tasks.
    #[serde(default, skip_serializing_if = "Capacity::is_none")]
    pub capacity: Capacity,
    /// What tells it from a worker to which another Redis gave its number; `None` in records of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<RegistrationId>,
}

impl Default for WorkerInfo {
    fn default() -> Self {
        Self {
            name: String::new(),
            host: String::new(),
            device: String::new(),
            pid: 0,
            process: None,
            training_slot: 1,
            max_batch: None,
            trains: true,
            capacity: Capacity::default(),
            registration: None,
        }
    }
}

fn yes() -> bool {
    true
}

fn first() -> u32 {
    1
}

fn is_first(slot: &u32) -> bool {
    *slot == 1
}

fn is_yes(is: &bool) -> bool {
    *is
}
