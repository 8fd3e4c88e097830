//! What may happen outside the core: the inputs of [`Core::handle`](super::Core::handle).

use serde::{Deserialize, Serialize};

use super::{
    shard_protocol::{ClosedBarrier, HeldJob, ProgressFloor, PushProgress, ShardProgress, SnapshotFile},
    state_dirs::ShardDirs,
    worker_info::WorkerInfo,
    worker_protocol::{TaskKey, TaskReport},
};
use crate::{
    fault_code::FaultCode,
    ids::{Incarnation, JobId, JobRef, RunId, ShardIndex, Superstep},
    spec::JobSpec,
    sync::Plan,
    tasks::{Attempts, GraphSpec, NewTask, ReportGroup, TaskIndex},
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
    /// The rest of a graph does not come: what was sent of it is forgotten, unless it has begun.
    AbandonGraph {
        /// Its id.
        job: JobId,
        /// The nonce of its submission.
        nonce: u32,
    },
    /// Gives out no further tasks of a job, or goes on with it.
    Pause {
        /// Job of either kind that is not over.
        job: JobId,
        /// Whether it is to rest; `false`: it goes on.
        paused: bool,
    },
    /// Somebody wants a checkpoint of what a training has learned so far.
    RequestCheckpoint(JobId),
    /// Attempts at general tasks have ended.
    TasksEnded {
        /// Who had them.
        worker: Incarnation,
        /// By job, in the order in which they ended; those of a job with another nonce change nothing.
        groups: Vec<ReportGroup>,
        /// The worker had not heard by then what this engine knows it to have: they end what was loaded, and
        /// nothing that was given out since under the same number.
        under_another: bool,
    },
    /// Somebody wants a job to end.
    Cancel(Cancellation),
    /// Somebody wants one general task to end.
    CancelTask(TaskCancellation),
    /// Forget a job that is over, with all that is stored of it.
    Delete(JobId),
    /// A worker has registered: it can be given work.
    WorkerJoined {
        /// Number that its process got, which no other one has.
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
        /// Attempts at general tasks that were given to it, and of which it was not told any more.
        never_told: Vec<Attempts>,
    },
    /// It left cleanly, and of what it had it has begun these attempts and no others.
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
    /// All shards hold the parameters of a job: it trains, from the beginning or from a checkpoint.
    ShardsOpened {
        /// Run that was opening.
        run: RunId,
    },
    /// The shards could not open a job so far, and are asked again.
    OpeningDelayed {
        /// Run that is opening.
        run: RunId,
        /// What is in the way, in words.
        reason: String,
    },
    /// A shard is gone, with the parameters of every job it held.
    ShardGone {
        /// Which one; jobs that are opening or running wait for it.
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
    /// From which state directories a shard is served and followed, before it says what it holds.
    ShardServed {
        /// Who came, or has another process that follows.
        shard: ShardIndex,
        /// Those of its processes that are there.
        dirs: ShardDirs,
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
    /// How far a shard came with a job that was loaded, or that it held when it came back: the store must not
    /// know less, nor the shard less than `floor`.
    Attached {
        /// Run that the shard holds.
        run: RunId,
        /// Who answers.
        shard: ShardIndex,
        /// What it has done, and has before it.
        progress: ShardProgress,
        /// As it was known when the shard was asked.
        floor: ProgressFloor,
    },
    /// A shard could not do what this job needs.
    ShardFailed {
        /// Run that cannot go on as it is.
        run: RunId,
        /// Stable, see docs/errors.md. After E220, E226, E405 and E439, and E406 of a checkpoint that is
        /// opened, it may go back to a checkpoint; all others end it.
        code: FaultCode,
        /// What it could not do, in words.
        reason: String,
    },
    /// This barrier is closed on this shard, and all before it.
    BarrierClosed {
        /// Run whose superstep it ends.
        run: RunId,
        /// Who has closed it; the superstep is over once all have.
        shard: ShardIndex,
        /// Which one, how long ago, and after how many pushes.
        barrier: ClosedBarrier,
    },
    /// A shard takes no more pushes of a worker; once all say so, its iterations are settled.
    Sealed {
        /// Run that the worker took part in.
        run: RunId,
        /// Who is gone.
        worker: Incarnation,
        /// Who has sealed it.
        shard: ShardIndex,
        /// How far its pushes came there.
        progress: PushProgress,
    },
    /// A shard has its part of a checkpoint in memory, as of a moment of rest.
    CheckpointPinned {
        /// Run at rest, which goes on once all shards have said so.
        run: RunId,
        /// As in [`Effect::PinCheckpoint`](super::Effect::PinCheckpoint).
        number: u64,
        /// Whose part it is.
        shard: ShardIndex,
        /// After a fault the checkpoint is given up, and the job goes on without it.
        outcome: Result<(), TaskFault>,
    },
    /// A shard has its part of a checkpoint on disk: so many bytes.
    CheckpointWritten {
        /// Run that goes on meanwhile.
        run: RunId,
        /// As in [`Effect::WriteCheckpoint`](super::Effect::WriteCheckpoint).
        number: u64,
        /// Whose part it is.
        shard: ShardIndex,
        /// Bytes of the part. After a fault the checkpoint is given up.
        outcome: Result<u64, TaskFault>,
    },
    /// The answer to [`Effect::Plan`](super::Effect::Plan).
    Planned {
        /// Run that was planned for.
        run: RunId,
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
    /// The last parameters of a job that is over could not be written so far, and are tried again.
    WeightsDelayed {
        /// Last run of the job.
        run: RunId,
        /// What is in the way, in words.
        reason: String,
    },
    /// A shard has nothing of the run whose last parameters are to be written. It is asked again until the
    /// run is closed.
    WeightsMissing {
        /// Last run of the job.
        run: RunId,
        /// What the shard said, or shard 0 of another one.
        fault: TaskFault,
        /// For so long this engine has been told so.
        missing_us: u64,
    },
    /// The last parameters of a job that ended without a snapshot.
    WeightsKept {
        /// Last run of a job that is over; that of another job of the name changes nothing.
        run: RunId,
        /// After a fault the weights are lost.
        outcome: Result<SnapshotFile, TaskFault>,
    },
}

/// A job that somebody wants to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    /// Job of either kind; one that is over already is refused.
    pub job: JobRef,
    /// For people; may be empty.
    pub reason: String,
    /// How long general tasks that run may take to end by themselves; 0: nobody waits for them. A training
    /// ends between two iterations and needs no time.
    pub grace_ms: u64,
}

/// A general task that somebody wants to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCancellation {
    /// Job that it belongs to.
    pub job: JobRef,
    /// Index in the job. Where it gives what another task gives, that one is ended.
    pub task: TaskIndex,
    /// For people; may be empty.
    pub reason: String,
    /// How long its function may take to end by itself if it runs; 0: nobody waits for it.
    pub grace_ms: u64,
}

/// What becomes of a submission whose name another job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfTaken {
    /// It is refused.
    Refuse,
    /// The other job makes room, if it is over, also one of the same content.
    Replace,
}

/// A job as it is submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Valid or not: it is checked when it is taken in.
    pub spec: Box<JobSpec>,
    /// Drawn by the client, the same for every try. Tells the job from others of the same name that come
    /// before or after it, the same ones among them. A submission of what is there already is answered
    /// as it was then, whatever its nonce.
    pub nonce: u32,
    /// Where its name is that of another job.
    pub if_taken: IfTaken,
}

/// A job of general tasks as it is submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphSubmission {
    /// The first part or all of the graph, with a digest of the whole.
    pub spec: Box<GraphSpec>,
    /// As that of a [`Submission`].
    pub nonce: u32,
    /// As that of a [`Submission`].
    pub if_taken: IfTaken,
}

/// Why an attempt at a node failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFault {
    /// Stable, see docs/errors.md.
    pub code: FaultCode,
    /// What went wrong, in words.
    pub reason: String,
}

impl TaskFault {
    /// The reason behind its code.
    pub fn in_words(&self) -> String {
        self.code.in_front_of(&self.reason).into_owned()
    }
}
