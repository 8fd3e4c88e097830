//! What may happen outside the core: the inputs of [`Core::handle`](super::Core::handle), and why one is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    shard_protocol::{ClosedBarrier, HeldJob, ProgressFloor, PushProgress, SnapshotFile},
    tasks::InvalidGraph,
    worker_protocol::{TaskKey, TaskReport},
};
use crate::{
    ids::{Generation, Incarnation, JobId, ShardIndex, Superstep},
    spec::{InvalidJob, JobSpec},
    sync::Plan,
    tasks::{Attempts, Capacity, GraphSpec, NewTask, ReportGroup, TaskIndex},
};

/// Something that happened outside. Every one may arrive twice; the second time changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Submit(Submission),
    /// A job of general tasks, or its first part.
    SubmitGraph(GraphSubmission),
    /// A further part; `first` is the index of its first task. One that is there already changes nothing.
    ExtendGraph {
        job: JobId,
        nonce: u32,
        first: TaskIndex,
        tasks: Vec<NewTask>,
    },
    /// All parts have come: `count` tasks.
    StartGraph {
        job: JobId,
        nonce: u32,
        count: u32,
    },
    /// Gives out no further general tasks of a job, or goes on with it.
    Pause {
        job: JobId,
        paused: bool,
    },
    /// Attempts at general tasks have ended.
    TasksEnded {
        worker: Incarnation,
        groups: Vec<ReportGroup>,
    },
    Cancel(Cancellation),
    /// Forget a job that is over, with all that is stored of it.
    Delete(JobId),
    WorkerJoined {
        worker: Incarnation,
        about: WorkerInfo,
    },
    /// Silent for too long, its connection closed, or it left.
    WorkerGone {
        worker: Incarnation,
        reason: String,
    },
    /// It left in order, and of what it had it has begun these attempts and no others.
    WorkerLeft {
        worker: Incarnation,
        begun: Vec<Attempts>,
    },
    Report {
        worker: Incarnation,
        report: TaskReport,
    },
    ShardsOpened {
        job: JobId,
        generation: Generation,
    },
    /// A shard is gone, with the parameters of every job it held.
    ShardLost {
        shard: ShardIndex,
        reason: String,
    },
    /// The process that followed a shard serves it now, at this address.
    ShardTakenOver {
        shard: ShardIndex,
        address: String,
    },
    /// What a shard that came, or came back, holds; asked for at `asked_us` on the engine's clock.
    ShardHolds {
        shard: ShardIndex,
        asked_us: u64,
        held: Vec<HeldJob>,
    },
    /// How far a shard came with a job that was loaded, or that it held when it came back: the store must not know less,
    /// nor the shard less than `floor`.
    Attached {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        closed: u64,
        watermarks: BTreeMap<Incarnation, u64>,
        floor: ProgressFloor,
    },
    /// A shard could not do what this job needs.
    ShardFailed {
        job: JobId,
        generation: Generation,
        code: String,
        reason: String,
    },
    /// This barrier is closed on this shard, and all before it.
    BarrierClosed {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        barrier: ClosedBarrier,
    },
    Sealed {
        job: JobId,
        generation: Generation,
        worker: Incarnation,
        shard: ShardIndex,
        progress: PushProgress,
    },
    /// A shard has its part of a checkpoint in memory, as of a moment of rest.
    CheckpointPinned {
        job: JobId,
        generation: Generation,
        number: u64,
        shard: ShardIndex,
        outcome: Result<(), TaskFault>,
    },
    /// A shard has its part of a checkpoint on disk: so many bytes.
    CheckpointWritten {
        job: JobId,
        generation: Generation,
        number: u64,
        shard: ShardIndex,
        outcome: Result<u64, TaskFault>,
    },
    Planned {
        job: JobId,
        generation: Generation,
        superstep: Superstep,
        /// As in the request.
        revision: u32,
        plan: Option<Plan>,
    },
    /// Time has passed: workers may have overrun their predictions.
    Tick,
    SnapshotWritten {
        key: TaskKey,
        outcome: Result<SnapshotFile, TaskFault>,
    },
    /// The last parameters of a job that ended without a snapshot.
    WeightsKept {
        job: JobId,
        generation: Generation,
        outcome: Result<SnapshotFile, TaskFault>,
    },
}

/// A job that somebody wants to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    pub job: JobId,
    /// For people; may be empty.
    pub reason: String,
    /// How long general tasks that run may take to end by themselves; 0: nobody waits for them. A training ends between two
    /// iterations and needs no time.
    pub grace_ms: u64,
}

/// A job as it is submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    pub spec: Box<JobSpec>,
    /// Drawn by the client, the same for every try. Tells the job from others of the same name that come before or after
    /// it, the same ones among them. A submission of what is there already is answered as it was then, whatever its nonce.
    pub nonce: u32,
    /// A job of the same name that is over makes room.
    pub replace: bool,
}

/// A job of general tasks as it is submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphSubmission {
    pub spec: Box<GraphSpec>,
    /// As that of a [`Submission`].
    pub nonce: u32,
    pub replace: bool,
}

/// A worker as it is stored and shown. It says it itself in the message `WorkerHello`, whose fields are never left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    pub name: String,
    pub host: String,
    pub device: String,
    /// Of its process; 0: not known.
    #[serde(default)]
    pub pid: u32,
    /// Drawn by its process, and the same for all training slots of it; 0: it has no others.
    #[serde(default, skip_serializing_if = "is_alone")]
    pub process: u64,
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
}

impl Default for WorkerInfo {
    fn default() -> Self {
        let (name, host, device) = Default::default();
        Self {
            name,
            host,
            device,
            pid: 0,
            process: 0,
            training_slot: 1,
            max_batch: None,
            trains: true,
            capacity: Capacity::default(),
        }
    }
}

fn yes() -> bool {
    true
}

fn is_alone(process: &u64) -> bool {
    *process == 0
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

/// Why an attempt at a node failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFault {
    pub code: String,
    pub reason: String,
}

/// Why an input of a user was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    #[error(transparent)]
    InvalidGraph(#[from] InvalidGraph),
    #[error("[E130] job {job} exists already{differs}")]
    Duplicate { job: JobId, differs: String },
    #[error("[E145] only the engine gives names such as {job}, to trainings of tasks")]
    Reserved { job: JobId },
    #[error("[E131] there is no job {job}")]
    Unknown { job: JobId },
    #[error("[E137] job {job} is over ({state}): there is nothing to cancel, pause or resume")]
    Over { job: JobId, state: &'static str },
    #[error("[E140] job {job} is {state}: only a job that is over can be deleted or replaced")]
    NotOver { job: JobId, state: &'static str },
}
