//! What a job has gone through: its events and its loss curve, as streams that can be read on from where one was.

use serde::{Deserialize, Serialize};
use syncline_scheduler::ids::{Incarnation, as_text};

use super::text::{self, UnknownFields, parsed_option, printed_option};
use crate::rpc::{StreamCursor, StreamEntry};

/// One entry of a stream, with the place from which the next ones are read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry<T> {
    /// Give it back to read what came later.
    #[serde(serialize_with = "as_text::serialize")]
    pub cursor: StreamCursor,
    #[serde(flatten)]
    pub value: T,
}

/// One point of the loss curve. Of a long job each stands for many iterations: 200 to 400 cover it all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsPoint {
    pub at_ms: u64,
    /// Samples of all iterations so far.
    pub samples: u64,
    /// Iterations that this point stands for.
    pub iterations: u64,
    /// Mean over their samples.
    pub loss: f64,
    /// Means over the iterations.
    pub step_us: u64,
    pub compute_us: u64,
    pub wait_us: u64,
    /// Pushes of others between an iteration's pull and its push.
    pub staleness_mean: f64,
    pub staleness_max: u64,
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    JobSubmitted,
    Started,
    WorkerJoined,
    WorkerLost,
    WorkerSealed,
    WorkerSlow,
    WorkerRecovered,
    WorkerExcluded,
    SuperstepReplanned,
    IterationTorn,
    AttemptFailed,
    SnapshotPutOff,
    Trained,
    JobEnded,
    WeightsKept,
    WeightsLost,
}

/// Something that happened to a job. Which fields there are depends on what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    pub what: EventKind,
    pub at_ms: u64,
    /// The worker that it is about, and its name.
    #[serde(default, deserialize_with = "parsed_option", serialize_with = "printed_option")]
    pub worker: Option<Incarnation>,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub host: Option<String>,
    /// The task or node.
    #[serde(default)]
    pub task: Option<String>,
    /// State of a job that ended.
    #[serde(default)]
    pub state: Option<String>,
    /// Of what went wrong.
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
    /// How many times as long a slow worker takes per sample.
    #[serde(default)]
    pub factor: Option<f64>,
    /// The file that holds the weights.
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub again_in_ms: Option<u64>,
    /// The barrier that was planned again.
    #[serde(default)]
    pub barrier: Option<u64>,
}

impl<T: serde::de::DeserializeOwned> Entry<T> {
    /// From an entry in Redis.
    pub fn read(entry: &StreamEntry) -> Result<Self, UnknownFields> {
        let value = text::read(&format!("entry {}", entry.at), &entry.fields)?;
        Ok(Self { cursor: entry.at, value })
    }
}
