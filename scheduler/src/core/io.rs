//! What goes into the core and what comes out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wire::{Assignment, TaskKey, TaskReport};
use crate::{
    ids::{Generation, Incarnation, JobId, ShardIndex, Superstep},
    spec::{InvalidJob, JobSpec},
    sync::{Plan, PlanRequest, RoundRule},
};

/// Something that happened outside. Every one may arrive twice; the second time changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Submit(Submission),
    Cancel(JobId),
    /// Forget a job that is over, with all that is stored of it.
    Delete(JobId),
    WorkerJoined {
        worker: Incarnation,
        about: WorkerAbout,
    },
    /// Silent for too long, its connection closed, or it said goodbye.
    WorkerGone {
        worker: Incarnation,
        reason: String,
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
    /// What a shard that came, or came back, holds; asked for at `asked_us` on the engine's clock.
    ShardHolds {
        shard: ShardIndex,
        asked_us: u64,
        held: Vec<(JobId, Generation)>,
    },
    /// How far a shard came with a job that was loaded, or that it held when it came back: the store must not know less,
    /// nor the shard less than `floor`.
    Attached {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        closed: u64,
        watermarks: BTreeMap<Incarnation, u64>,
        floor: Floor,
    },
    /// A shard could not do what this job needs.
    ShardFailed {
        job: JobId,
        generation: Generation,
        code: String,
        reason: String,
    },
    /// `closed` barriers are closed on this shard.
    BarrierClosed {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        stand: ShardStand,
    },
    Sealed {
        job: JobId,
        generation: Generation,
        worker: Incarnation,
        shard: ShardIndex,
        stand: Stand,
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

/// A job as it is submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    pub spec: Box<JobSpec>,
    /// Drawn by the client, the same for every try: a submission that was taken before is answered as it was then. Also
    /// tells the job from others of the same name.
    pub nonce: u32,
    /// A job of the same name that is over makes room.
    pub replace: bool,
}

/// Where a job stands on one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardStand {
    /// Barriers closed so far, the last of them this long ago.
    pub closed: u64,
    pub closed_ago_us: u64,
    /// Pushes it had applied completely by then.
    pub pushes: u64,
}

/// How far a sealed worker's pushes came on one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// Last push applied completely.
    pub watermark: u64,
    /// Whether the next one had begun to be applied.
    pub partial: bool,
}

/// A worker, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAbout {
    pub name: String,
    pub host: String,
    pub device: String,
    /// Of its process; 0: not known.
    #[serde(default)]
    pub pid: u32,
    /// Most samples that fit into its memory at once, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<u32>,
}

/// A snapshot that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFile {
    pub path: String,
    pub bytes: u64,
    pub digest: String,
}

/// Why an attempt at a node failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFault {
    pub code: String,
    pub reason: String,
}

/// What the shell must do once the changes of this turn are committed.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Assign {
        worker: Incarnation,
        assignment: Assignment,
    },
    /// The worker's report is taken: it need not be held any longer.
    Settle {
        worker: Incarnation,
        key: TaskKey,
    },
    /// Nobody wants the task any more: it must not be started.
    Revoke {
        worker: Incarnation,
        key: TaskKey,
    },
    /// The worker serves no job under this incarnation any more: it must register again.
    Drop {
        worker: Incarnation,
        reason: String,
    },
    OpenShards {
        job: JobId,
        generation: Generation,
    },
    /// Ask a shard how far it is, and answer with [`Input::Attached`].
    Attach {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        floor: Floor,
    },
    Order {
        job: JobId,
        generation: Generation,
        barrier: Barrier,
    },
    /// Whose clocks count for pulls that wait for a minimum clock.
    Clocks {
        job: JobId,
        generation: Generation,
        roster: ClockRoster,
    },
    Seal {
        job: JobId,
        generation: Generation,
        worker: Incarnation,
    },
    Snapshot {
        key: TaskKey,
        version: u64,
    },
    /// The shards forget a job, and before that write its last parameters if they are to be `keep`t.
    CloseShards {
        job: JobId,
        generation: Generation,
        keep: bool,
    },
    Plan(PlanRequest),
}

/// A barrier as the shards need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Barrier {
    pub superstep: Superstep,
    pub revision: u32,
    pub roster: BTreeMap<Incarnation, u64>,
    pub learning_rate: f32,
    pub rule: RoundRule,
    pub pin: bool,
}

/// The workers whose clocks count. A higher revision replaces a lower one; a sealed worker counts no more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRoster {
    pub revision: u64,
    /// What to add to a worker's number of pushes to get its clock.
    pub base: BTreeMap<Incarnation, u64>,
}

/// Why an input of a user was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    #[error("[E130] job {job} exists already")]
    Duplicate { job: JobId },
    #[error("[E131] there is no job {job}")]
    Unknown { job: JobId },
    #[error("[E137] job {job} is over ({state}) and cannot be canceled")]
    Over { job: JobId, state: &'static str },
    #[error("[E140] job {job} is {state}: only a job that is over can be deleted or replaced")]
    NotOver { job: JobId, state: &'static str },
}

/// What every shard has done of a job: it said so once, so that one which knows less has gone back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floor {
    /// Barriers that are closed on all shards.
    pub closed: u64,
    /// Last push of each worker that every shard has acknowledged.
    pub pushes: BTreeMap<Incarnation, u64>,
}
