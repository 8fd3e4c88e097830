//! What the core hands to workers and takes back from them.

use serde::{Deserialize, Serialize};

use super::evaluation::{EvaluationPart, EvaluationSums};
use crate::{
    fault_code::FaultCode,
    graph::TaskId,
    ids::{RunId, Superstep},
    samples::SampleRange,
};

/// What a worker does with the gradient of one iteration: the worker's side of
/// [`Aggregation`](crate::sync::Aggregation).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum GradientUse {
    /// It is pushed, and applied on arrival after scaling by `scale`: 1, or the share of this batch in the
    /// average batch where the policy gives workers different ones.
    ApplyOnArrival {
        /// Factor on the gradient, besides that of clipping.
        scale: f32,
    },
    /// It is pushed into the round's weighted mean, which is applied as one step when the barrier closes.
    JoinRound,
    /// It is a step on the worker's own copy. The iteration `first` begins a round with a pull, the iteration
    /// `last` ends it with one push of the whole change; nothing is transferred between them.
    LocalStep {
        /// First iteration of the worker's round, by its number `seq`.
        first: u64,
        /// Last one, inclusive.
        last: u64,
    },
}

/// One attempt at one task of one job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// Run that the task belongs to; an attempt of an older one changes nothing.
    pub run: RunId,
    /// What the worker prepares or iterates, or a node.
    pub task: TaskId,
    /// Which attempt at it, from 1.
    pub attempt: u32,
}

/// A task that a worker is to execute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// What the report names again.
    pub key: TaskKey,
    /// The worker's number in the job: so many came to it before. Workers draw different random numbers by
    /// it.
    pub worker_number: u32,
    /// What to do for it.
    pub work: Work,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Open the job, and compute a batch that counts nowhere.
    Prepare {
        /// Its samples.
        range: SampleRange,
    },
    /// Pull version `superstep` or later, compute the gradient of `range`, push it as number `seq`.
    Iterate {
        /// Superstep that it belongs to.
        superstep: Superstep,
        /// Its number among the worker's iterations in this generation, from 1.
        seq: u64,
        /// Samples to compute on: as many as the worker's batch, or fewer at the end of a range or an epoch.
        range: SampleRange,
        /// Rate of the job's schedule when it was granted, times the superstep's factor.
        learning_rate: f32,
        /// The pull also waits until every worker's clock has reached this; 0: it does not.
        min_clock: u64,
        /// What to do with what was computed.
        gradient: GradientUse,
    },
    /// Pull pinned version `version` and run the evaluation graph over test samples.
    Evaluate {
        /// That of the newest closed barrier.
        version: u64,
        /// Which of the test samples.
        part: EvaluationPart,
    },
}

/// What came of an attempt. Repeated until acknowledged; a repeated one changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// As in the assignment.
    pub key: TaskKey,
    /// Time since the attempt ended, on the worker's monotonic clock.
    pub ended_ago_us: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The iteration is done, and its samples count.
    Iterated(Iterated),
    /// The worker can run the job.
    Prepared,
    /// What the model makes of the test samples that were asked for.
    Evaluated(EvaluationSums),
    /// The attempt brought nothing.
    Failed {
        /// Stable, see docs/errors.md.
        code: FaultCode,
        /// What went wrong, in words.
        reason: String,
        /// Whether the worker is excluded from the job, or the attempt counts against the task.
        blame: Blame,
    },
}

impl Outcome {
    /// Whether such a task can end like this; only what a worker does can fail at one.
    pub(super) fn is_of(&self, task: &TaskId) -> bool {
        match task {
            TaskId::Prepare(_) => matches!(self, Self::Prepared | Self::Failed { .. }),
            TaskId::Iteration { .. } => matches!(self, Self::Iterated(_) | Self::Failed { .. }),
            TaskId::Evaluation { .. } | TaskId::Node(_) => {
                matches!(self, Self::Evaluated(_) | Self::Failed { .. })
            }
            TaskId::Barrier(_) | TaskId::Clock(_) => false,
        }
    }
}

/// Who is to blame for a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// The job itself: it would fail on every worker.
    Job,
    /// This worker: it lacks a file, memory or a connection that another may have.
    Worker,
}

/// A finished iteration: every shard has acknowledged its push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Iterated {
    /// The samples it was computed on.
    pub range: SampleRange,
    /// Mean over its samples by their weight in the loss; may be not finite where `skipped`, and is not a
    /// number where none of them has any weight.
    pub loss: f32,
    /// What its samples weigh in the loss together, so that means of several iterations are those of their
    /// samples: by class weights, without ignored labels, else how many they are.
    pub loss_weight: f32,
    /// The loss or a gradient was not finite and the push carried no weight.
    pub skipped: bool,
    /// It was skipped because its loss was scaled by too much for float16; the next ones have a smaller
    /// scale.
    pub is_overflow: bool,
    /// Execution of the training graph.
    pub compute_us: u64,
    /// Sleep that emulates a slower machine.
    pub throttle_us: u64,
    /// Transfer of the parameters, without waiting for the version.
    pub pull_us: u64,
    /// From the beginning of the push to the acknowledgement of the last shard; 0 inside a local round.
    pub push_us: u64,
    /// Waiting for the version at the parameter server.
    pub wait_us: u64,
    /// Pushes of others that were applied between this iteration's pull and its push.
    pub staleness: u64,
    /// How far the worker was ahead of the slowest when its push was in, in iterations.
    pub lead: u64,
    /// Load of the worker's machine when the iteration ended, from 0 to 1.
    pub cpu_load: f32,
    /// Share of its memory that cannot be had without swapping, from 0 to 1; 0 where it is not known.
    pub memory_load: f32,
}

impl Iterated {
    /// The interval used for prediction: everything but waiting.
    pub fn busy_us(&self) -> u64 {
        self.compute_us + self.throttle_us + self.pull_us + self.push_us
    }
}
