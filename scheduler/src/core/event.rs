//! What happens to jobs, told to people: the events of a job's history. Nothing is decided by them.
//!
//! The core says what happened as a value. Its words are those of [`EventKind`], which whoever reads the
//! history uses as well; the text of its fields is made where it is written down.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    evaluation::{Evaluation, EvaluationSet},
    inputs::TaskFault,
    records::Phase,
};
use crate::{
    graph::TaskId,
    ids::{Incarnation, JobId, ShardIndex, Superstep},
};

/// One entry of a job's history.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it happened, on the engine's clock.
    pub at_us: u64,
    /// What happened.
    pub what: Happening,
}

/// What happened to a job, with what is told of it. What each means stands at the [`EventKind`] of the same
/// name.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the kinds are documented, and the fields are called as in docs/redis-schema.md"
)]
pub enum Happening {
    JobSubmitted(Submitted),
    Started(Begun),
    WorkerJoined(NamedWorker),
    WorkerPrepared(NamedWorker),
    WorkerLost { worker: NamedWorker, reason: String },
    WorkerSealed { worker: NamedWorker, applied: u64 },
    WorkerSlow { worker: NamedWorker, speed: RelativeSpeed },
    WorkerRecovered { worker: NamedWorker, speed: RelativeSpeed },
    WorkerExcluded { worker: NamedWorker, host: String, fault: TaskFault, again_in_ms: u64 },
    SuperstepReplanned { barrier: Superstep, shortened: String },
    IterationTorn { task: TaskId },
    CheckpointKept { checkpoint: u64, samples: u64, bytes: u64, rest_ms: u64 },
    CheckpointFailed { checkpoint: u64, fault: TaskFault },
    Evaluated { samples: u64, set: EvaluationSet, evaluation: Evaluation },
    EvaluationFailed { task: TaskId, fault: TaskFault },
    LearningRateReduced { samples: u64, learning_rate: f32 },
    StoppedEarly { samples: u64, reason: String },
    BestRestored { checkpoint: u64, samples: u64, reason: String },
    BestUnreadable { checkpoint: u64, fault: TaskFault },
    RolledBack { iterations: u64, samples: u64, reason: String, checkpoint: Option<u64> },
    ShardLost { shard: ShardIndex, reason: String },
    ShardTakenOver { shard: ShardIndex, address: String },
    NodeFailed { task: TaskId, attempt: u32, fault: TaskFault },
    AttemptFailed { task: String, attempt: u16, by: Assignee, fault: TaskFault },
    AttemptDone { task: String, attempt: u16, by: Assignee },
    TaskFailed { task: String, fault: TaskFault },
    WorkerGone { worker: Incarnation, tasks: usize },
    TrainingBegun { task: String, training: JobId },
    Paused,
    Resumed,
    Canceling { until_ms: u64, reason: String },
    SnapshotPutOff { task: TaskId, attempt: u32, fault: TaskFault },
    Trained { barriers: u64 },
    JobEnded { phase: Phase, cancel_reason: String },
    WeightsKept { path: String },
    WeightsLost(TaskFault),
    WrittenAgain { reason: String },
}

/// What was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// A training, of so many nodes.
    Training {
        /// Nodes of its graph.
        nodes: usize,
    },
    /// A graph of general tasks.
    Tasks,
}

/// With what a job has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// So many workers that train.
    Workers(usize),
    /// So many general tasks.
    Tasks(u32),
}

/// A worker as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWorker {
    /// Under which it takes part.
    pub id: Incarnation,
    /// As people call it; may be empty.
    pub name: String,
}

/// How a worker's speed is to that of the median one, by what is predicted of its next iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelativeSpeed {
    /// How many times as long it takes per sample.
    pub factor: f64,
    /// How long it takes for an iteration, without waiting.
    pub interval_us: u64,
    /// How long the median worker takes for as many samples.
    pub median_interval_us: u64,
}

/// Who had an attempt at a general task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignee {
    /// A worker that calls functions.
    Worker(Incarnation),
    /// The job that trains for it.
    Training(JobId),
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The engine has taken it in.
    JobSubmitted,
    /// The shards hold the parameters of a training, or all general tasks have come: work is given out.
    Started,
    /// A worker came to the training. Where others are at work, it prepares itself first.
    WorkerJoined,
    /// A worker has shown that it can run the training, and takes part from now on.
    WorkerPrepared,
    /// A worker of the training is gone; the shards are asked how far its pushes came.
    WorkerLost,
    /// All shards have said how far a lost worker's pushes came: what none of them has is handed out again.
    WorkerSealed,
    /// A worker takes much longer per sample than the median one: see [`RelativeSpeed`].
    WorkerSlow,
    /// A worker that was slow is so no more.
    WorkerRecovered,
    /// A worker cannot run the job, and is not offered it for some time.
    WorkerExcluded,
    /// A worker overran its prediction: iterations before the barrier that nobody was granted are cut.
    SuperstepReplanned,
    /// A lost worker's push is in on some of the shards, or in part: its samples count.
    IterationTorn,
    /// Every shard has its part of a checkpoint on disk.
    CheckpointKept,
    /// A shard could not do its part of a checkpoint; the training goes on.
    CheckpointFailed,
    /// The model was evaluated on the validation or test samples, while it trains or by a node.
    Evaluated,
    /// An evaluation while it trains failed, and is left out; the training goes on.
    EvaluationFailed,
    /// Training has not become better for so long that its learning rate falls; `learning_rate` is what it is
    /// behind the warmup.
    LearningRateReduced,
    /// Training ends before its epochs are over: it has not become better for as long as it may.
    StoppedEarly,
    /// Training is over, and the shards go back to the parameters of its best evaluation.
    BestRestored,
    /// A shard cannot read the best parameters, to which it was to go back: others are handed on.
    BestUnreadable,
    /// The job went back to a checkpoint.
    RolledBack,
    /// A shard counts as lost; the job waits for it, and goes back to its newest checkpoint if need be.
    ShardLost,
    /// The standby of a shard serves it.
    ShardTakenOver,
    /// An attempt at a general task has failed, or one at a node that is tried again.
    AttemptFailed,
    /// Of general tasks: an attempt was done after others have failed.
    AttemptDone,
    /// Of general tasks: one has failed for good.
    TaskFailed,
    /// Of general tasks: a worker was lost that had some.
    WorkerGone,
    /// Of general tasks: a job trains for one.
    TrainingBegun,
    /// Somebody holds it up: no more of it is given out.
    Paused,
    /// Somebody lets it go on after a pause.
    Resumed,
    /// Of general tasks: somebody wants the job to end, and what runs has some time for it.
    Canceling,
    /// A snapshot could not be written for a reason that may pass; it is tried again.
    SnapshotPutOff,
    /// Every sample is counted and the last barrier has closed; nodes behind the training follow.
    Trained,
    /// It is done, has failed, or was canceled.
    JobEnded,
    /// The last parameters of a job that ended without a snapshot were written to a file.
    WeightsKept,
    /// The last parameters of a job that ended without a snapshot could not be written.
    WeightsLost,
    /// Redis had lost some of the job's record, and with it some of these events.
    WrittenAgain,
}

impl fmt::Display for EventKind {
    /// The word in the history, such as `job_submitted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Happening {
    /// What it is, without what is told of it.
    pub fn kind(&self) -> EventKind {
        use {EventKind as K, Happening as H};
        match self {
            H::JobSubmitted(_) => K::JobSubmitted,
            H::Started(_) => K::Started,
            H::WorkerJoined(_) => K::WorkerJoined,
            H::WorkerPrepared(_) => K::WorkerPrepared,
            H::WorkerLost { .. } => K::WorkerLost,
            H::WorkerSealed { .. } => K::WorkerSealed,
            H::WorkerSlow { .. } => K::WorkerSlow,
            H::WorkerRecovered { .. } => K::WorkerRecovered,
            H::WorkerExcluded { .. } => K::WorkerExcluded,
            H::SuperstepReplanned { .. } => K::SuperstepReplanned,
            H::IterationTorn { .. } => K::IterationTorn,
            H::CheckpointKept { .. } => K::CheckpointKept,
            H::CheckpointFailed { .. } => K::CheckpointFailed,
            H::Evaluated { .. } => K::Evaluated,
            H::EvaluationFailed { .. } => K::EvaluationFailed,
            H::LearningRateReduced { .. } => K::LearningRateReduced,
            H::StoppedEarly { .. } => K::StoppedEarly,
            H::BestRestored { .. } => K::BestRestored,
            H::BestUnreadable { .. } => K::BestUnreadable,
            H::RolledBack { .. } => K::RolledBack,
            H::ShardLost { .. } => K::ShardLost,
            H::ShardTakenOver { .. } => K::ShardTakenOver,
            H::NodeFailed { .. } | H::AttemptFailed { .. } => K::AttemptFailed,
            H::AttemptDone { .. } => K::AttemptDone,
            H::TaskFailed { .. } => K::TaskFailed,
            H::WorkerGone { .. } => K::WorkerGone,
            H::TrainingBegun { .. } => K::TrainingBegun,
            H::Paused => K::Paused,
            H::Resumed => K::Resumed,
            H::Canceling { .. } => K::Canceling,
            H::SnapshotPutOff { .. } => K::SnapshotPutOff,
            H::Trained { .. } => K::Trained,
            H::JobEnded { .. } => K::JobEnded,
            H::WeightsKept { .. } => K::WeightsKept,
            H::WeightsLost(_) => K::WeightsLost,
            H::WrittenAgain { .. } => K::WrittenAgain,
        }
    }
}
