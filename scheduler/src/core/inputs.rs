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
    /// A client submits a training.
    Submit(Submission),
    /// A job of general tasks, or its first part.
    SubmitGraph(GraphSubmission),
    /// A further part; `first` is the index of its first task. One that is there already changes nothing.
    ExtendGraph {
        /// Job that was submitted, and not started yet.
        job: JobId,
        /// That of its submission: with another one there is no such job.
        nonce: u32,
        /// The number of tasks that are there, unless the whole part is there already.
        first: TaskIndex,
        /// Their classes are those of the first part.
        tasks: Vec<NewTask>,
    },
    /// All parts have come: `count` tasks.
    StartGraph {
        /// Job whose last part was sent.
        job: JobId,
        /// That of its submission: with another one there is no such job.
        nonce: u32,
        /// Must equal the number that is there; not looked at once the job has begun.
        count: u32,
    },
    /// Gives out no further tasks of a job, or goes on with it.
    Pause {
        /// Job of either kind that is not over.
        job: JobId,
        /// Whether it is to rest; `false`: it goes on.
        paused: bool,
    },
    /// Attempts at general tasks have ended.
    TasksEnded {
        /// Who had them.
        worker: Incarnation,
        /// By job, in the order in which they ended; those of a job with another nonce change nothing.
        groups: Vec<ReportGroup>,
    },
    /// Somebody wants a job to end.
    Cancel(Cancellation),
    /// Forget a job that is over, with all that is stored of it.
    Delete(JobId),
    /// A worker has registered: it can be given work.
    WorkerJoined {
        /// Number that it got for this life of its process.
        worker: Incarnation,
        /// What it said of itself.
        about: WorkerInfo,
    },
    /// Silent for too long, its connection closed, or it left.
    WorkerGone {
        /// Who is gone; it may come back under another number.
        worker: Incarnation,
        /// In words, for the events of its jobs.
        reason: String,
    },
    /// It left in order, and of what it had it has begun these attempts and no others.
    WorkerLeft {
        /// Who left.
        worker: Incarnation,
        /// By job. General tasks that it has besides go elsewhere as if it had never had them.
        begun: Vec<Attempts>,
    },
    /// An attempt at a task of a training has ended.
    Report {
        /// Who reports; iterations of others are not taken from it.
        worker: Incarnation,
        /// What came of it, and how long ago.
        report: TaskReport,
    },
    /// All shards hold the parameters of a job: it trains, from the begin or from a checkpoint.
    ShardsOpened {
        /// Job that was opening.
        job: JobId,
        /// Generation that they hold.
        generation: Generation,
    },
    /// A shard is gone, with the parameters of every job it held.
    ShardGone {
        /// Which one; every job that is opening or running fails.
        shard: ShardIndex,
        /// In words, such as how long it was silent.
        reason: String,
    },
    /// The process that followed a shard serves it now, at this address.
    ShardTakenOver {
        /// Shard that goes on with everything it had.
        shard: ShardIndex,
        /// Where the process is, for the events of running jobs.
        address: String,
    },
    /// What a shard that came, or came back, holds; asked for at `asked_us` on the engine's clock.
    ShardHolds {
        /// Who was asked.
        shard: ShardIndex,
        /// A job that opened later may be missing from the answer.
        asked_us: u64,
        /// All jobs that it has in memory, in whatever generation.
        held: Vec<HeldJob>,
    },
    /// How far a shard came with a job that was loaded, or that it held when it came back: the store must not know less,
    /// nor the shard less than `floor`.
    Attached {
        /// Running job.
        job: JobId,
        /// Generation that the shard holds.
        generation: Generation,
        /// Who answers.
        shard: ShardIndex,
        /// Barriers of the generation that it has closed.
        closed: u64,
        /// Last push of each incarnation that it has applied completely.
        watermarks: BTreeMap<Incarnation, u64>,
        /// As it was known when the shard was asked.
        floor: ProgressFloor,
    },
    /// A shard could not do what this job needs.
    ShardFailed {
        /// Job that cannot go on as it is.
        job: JobId,
        /// Generation in which it was ordered.
        generation: Generation,
        /// Stable, see docs/errors.md. After E220 and E439 it may go back to a checkpoint; all others end it.
        code: String,
        /// The same in words.
        reason: String,
    },
    /// This barrier is closed on this shard, and all before it.
    BarrierClosed {
        /// Job whose superstep it ends.
        job: JobId,
        /// Generation in which it was ordered.
        generation: Generation,
        /// Who has closed it; the superstep is over once all have.
        shard: ShardIndex,
        /// Which one, how long ago, and after how many pushes.
        barrier: ClosedBarrier,
    },
    /// A shard takes no more pushes of a worker; once all say so, its iterations are settled.
    Sealed {
        /// Job that the worker took part in.
        job: JobId,
        /// Generation in which it pushed.
        generation: Generation,
        /// Who is gone.
        worker: Incarnation,
        /// Who has sealed it.
        shard: ShardIndex,
        /// How far its pushes came there.
        progress: PushProgress,
    },
    /// A shard has its part of a checkpoint in memory, as of a moment of rest.
    CheckpointPinned {
        /// Job at rest, which goes on once all shards have said so.
        job: JobId,
        /// Generation that was copied.
        generation: Generation,
        /// As in [`Effect::PinCheckpoint`](super::Effect::PinCheckpoint).
        number: u64,
        /// Whose part it is.
        shard: ShardIndex,
        /// After a fault the checkpoint is given up, and the job goes on without it.
        outcome: Result<(), TaskFault>,
    },
    /// A shard has its part of a checkpoint on disk: so many bytes.
    CheckpointWritten {
        /// Job that trains on meanwhile.
        job: JobId,
        /// Generation that was copied.
        generation: Generation,
        /// As in [`Effect::WriteCheckpoint`](super::Effect::WriteCheckpoint).
        number: u64,
        /// Whose part it is.
        shard: ShardIndex,
        /// Bytes of the part. After a fault the checkpoint is given up.
        outcome: Result<u64, TaskFault>,
    },
    /// The answer to [`Effect::Plan`](super::Effect::Plan).
    Planned {
        /// Job that was planned for.
        job: JobId,
        /// Generation of the request.
        generation: Generation,
        /// Superstep that is to end; one that is closed or planned otherwise by now takes no plan.
        superstep: Superstep,
        /// As in the request.
        revision: u32,
        /// `None`: no window was found. It ends at its first predicted iterations, or as planned before.
        plan: Option<Plan>,
    },
    /// Time has passed: workers may have overrun their predictions.
    Tick,
    /// A snapshot node's file is written, or cannot be.
    SnapshotWritten {
        /// As in [`Effect::Snapshot`](super::Effect::Snapshot).
        key: TaskKey,
        /// A full disk or a shard out of reach is waited for; any other fault counts as a failed attempt.
        outcome: Result<SnapshotFile, TaskFault>,
    },
    /// The last parameters of a job that ended without a snapshot.
    WeightsKept {
        /// Job that is over.
        job: JobId,
        /// Its last generation; that of another job of the name changes nothing.
        generation: Generation,
        /// After a fault the weights are lost.
        outcome: Result<SnapshotFile, TaskFault>,
    },
}

/// A job that somebody wants to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    /// Job of either kind; one that is over already is refused.
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
    /// Valid or not: [`JobSpec::validate`] is called when it is taken in.
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
    /// The first part or all of the graph, with a digest of the whole.
    pub spec: Box<GraphSpec>,
    /// As that of a [`Submission`].
    pub nonce: u32,
    /// As that of a [`Submission`].
    pub replace: bool,
}

/// A worker as it is stored and shown. It says it itself in the message `WorkerHello`, whose fields are never left out.
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
    /// Stable, see docs/errors.md.
    pub code: String,
    /// The same in words.
    pub reason: String,
}

/// Why an input of a user was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The spec of a training is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// A graph, or a part of one, is not valid.
    #[error(transparent)]
    InvalidGraph(#[from] InvalidGraph),
    /// The name is taken by another job, and replacing was not asked for.
    #[error("[E130] job {job} exists already{differs}")]
    Duplicate {
        /// Name that is taken.
        job: JobId,
        /// In what the job that is there differs, in words that begin with a comma.
        differs: String,
    },
    /// A user submits under a name such as `sweep~3`.
    #[error("[E145] only the engine gives names such as {job}, to trainings of tasks")]
    Reserved {
        /// Name that was asked for.
        job: JobId,
    },
    /// There is none of that name, or the part of a graph has the nonce of another submission.
    #[error("[E131] there is no job {job}")]
    Unknown {
        /// Name that was asked for.
        job: JobId,
    },
    /// The job has come to its end before.
    #[error("[E137] job {job} is over ({state}): there is nothing to cancel, pause or resume")]
    Over {
        /// Job that was to be canceled, paused or resumed.
        job: JobId,
        /// How it ended, in a word.
        state: &'static str,
    },
    /// The job must be canceled first.
    #[error("[E140] job {job} is {state}: only a job that is over can be deleted or replaced")]
    NotOver {
        /// Job that was to be deleted or replaced.
        job: JobId,
        /// Where it stands, in a word.
        state: &'static str,
    },
}
