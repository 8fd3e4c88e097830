//! The values a job consists of. Everything that can influence a later decision is here and is stored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    exclusion::Exclusion,
    inputs::WorkerInfo,
    recent_rate::RecentRate,
    shard_protocol::{PushProgress, SnapshotFile},
    worker_protocol::Evaluation,
};
use crate::{
    balance::CurveFit,
    graph::{TaskId, TaskState},
    ids::{Generation, Incarnation, NodeName, ShardIndex, Superstep},
    predict::{IntervalEstimator, PredictionErrors},
    samples::{SampleCursor, SampleRange},
    sync::{Aggregation, Clock, EndRule, PlanRow, Policy, Why, search::Alternative},
};

/// Where a job stands as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for workers.
    Queued,
    /// The shards load the initial parameters.
    Opening,
    Running,
    Done,
    Failed {
        code: String,
        reason: String,
    },
    Canceled,
}

impl Phase {
    /// One word, as people see it in Redis.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed { .. } => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// Whether nothing can follow.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Done | Self::Failed { .. } | Self::Canceled)
    }
}

/// Sums over the whole job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    pub done: u64,
    pub lost: u64,
    pub torn: u64,
    pub skipped: u64,
    pub samples_done: u64,
    pub samples_torn: u64,
    pub barriers: u64,
    pub predicted_wait_us: u64,
    pub actual_wait_us: u64,
    /// Supersteps that were planned again because a worker overran its prediction.
    pub replanned: u64,
    /// Highest lead over the slowest worker that a shard saw at a push.
    pub max_lead: u64,
}

/// The part of a job that belongs to nobody in particular.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    pub phase: Phase,
    pub generation: Generation,
    /// Number of shards, fixed when the job opens.
    pub shards: u32,
    pub policy: Policy,
    pub cursor: SampleCursor,
    pub next_superstep: Superstep,
    /// Of the roster of clocks that the shards have.
    pub clock_revision: u64,
    /// Barriers closed on every shard; also the newest version.
    pub closed: u64,
    pub counters: Counters,
    /// For people: how fast it has been in the last seconds.
    #[serde(default)]
    pub recent_rate: RecentRate,
    /// Samples counted in each epoch that is not complete, and how many epochs are.
    pub counted: BTreeMap<u32, u64>,
    pub epochs_complete: u32,
    /// Sample-weighted mean loss of the newest reports.
    pub loss: Option<f32>,
    pub submitted_us: u64,
    pub started_us: Option<u64>,
    pub trained_us: Option<u64>,
    pub ended_us: Option<u64>,
    pub evaluation: Option<Evaluation>,
    pub snapshot: Option<SnapshotFile>,
    /// The job is over, and the shards are still to write its last parameters.
    pub keeping: bool,
    /// What the job as a whole waits for, in words.
    pub waiting_for: Option<String>,
    /// Workers that could not run it, by what identifies their process.
    pub excluded: BTreeMap<String, Exclusion>,
    /// Nodes that failed for a reason that may pass.
    pub retries: BTreeMap<NodeName, Retry>,
    pub curve: CurveSampling,
}

/// A node that is tried again until it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub failures: u32,
    pub at_us: u64,
    pub code: String,
    pub reason: String,
}

/// The loss curve in the store: it keeps its shape however long the job is, because points become rarer instead of the
/// oldest being dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurveSampling {
    pub points: u64,
    /// Iterations that one point stands for.
    pub stride: u64,
}

impl Default for CurveSampling {
    fn default() -> Self {
        Self { points: 0, stride: 1 }
    }
}

/// Whether a worker still takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Membership {
    Active,
    /// Dropped; the shards are asked how far its pushes came.
    Sealing {
        answers: BTreeMap<ShardIndex, PushProgress>,
    },
    Gone,
}

/// Durations a worker has reported, summed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeTotals {
    pub iterations: u64,
    pub samples: u64,
    pub compute_us: u64,
    /// Sleep that emulates a slower machine.
    #[serde(rename = "pace_us")]
    pub throttle_us: u64,
    pub pull_us: u64,
    pub push_us: u64,
    pub wait_us: u64,
}

/// One worker incarnation in one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    #[serde(flatten)]
    pub about: WorkerInfo,
    #[serde(rename = "standing")]
    pub membership: Membership,
    /// Last iteration that some superstep has room for; never below `granted`.
    pub planned: u64,
    /// Last iteration that was leased.
    pub granted: u64,
    /// Last iteration up to which all are over.
    pub finished: u64,
    /// Samples set aside for iterations `granted + 1 ..= planned`, in that order.
    pub reserved: VecDeque<SampleRange>,
    /// Its clock when it joined: iteration `seq` makes its clock `clock_base + seq`.
    pub clock_base: u64,
    /// Samples per iteration in the newest superstep it has a part in.
    pub batch: u32,
    /// When the last iteration ended and how long it took without waiting, on the engine's clock.
    pub last_end_us: u64,
    pub interval_us: u64,
    /// Samples of that iteration.
    pub interval_samples: u32,
    /// What is predicted of its speed, and how well.
    pub speed: IntervalEstimator,
    /// The same as a function of the batch, where the policy needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveFit>,
    #[serde(rename = "transfer")]
    pub step_times: StepTimes,
    /// Set while it is much slower than most.
    #[serde(rename = "slow", default, skip_serializing_if = "Option::is_none")]
    pub straggler: Option<Straggler>,
    pub spent: TimeTotals,
}

/// A member as it is stored: with its clock, if it takes part, and with how well its speed was predicted.
#[derive(Debug, Serialize)]
pub(super) struct MemberRecord<'a> {
    #[serde(flatten)]
    pub member: &'a Member,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<&'a Clock>,
    /// For people only: it follows from the member.
    pub prediction: PredictionErrors,
}

/// The clock in a member's record.
#[derive(Debug, Deserialize)]
pub(super) struct ClockRecord {
    #[serde(default)]
    pub clock: Option<Clock>,
}

/// Moving averages of where a worker's time goes, in µs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    pub compute_us: f64,
    /// Of iterations that pulled or pushed anything.
    pub pull_us: f64,
    pub push_us: f64,
}

/// A worker that is much slower than most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    pub since_us: u64,
    /// Its predicted time per sample over the median.
    pub factor: f64,
}

/// What is known about the end of an open superstep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuperstepPhase {
    /// Not decided; the roster is open to joiners.
    Open(EndRule),
    /// Being computed from these rows; the roster is frozen.
    Planning(Vec<PlanRow>),
    /// Leased to every shard; the roster is frozen.
    Ordered,
    /// Closed on every shard; kept for people.
    Closed { closed_us: u64, actual_wait_us: u64 },
}

/// A worker's part of one superstep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterEntry {
    /// Last iteration before this superstep.
    pub base: u64,
    /// Last iteration of this superstep, once decided.
    pub last: Option<u64>,
    /// Samples per iteration.
    pub batch: u32,
    /// When its last iteration ended, as far as it was reported when the barrier closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived_us: Option<u64>,
}

/// The work between two barriers, and the barrier that ends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuperstepState {
    #[serde(rename = "end")]
    pub phase: SuperstepPhase,
    pub roster: BTreeMap<Incarnation, RosterEntry>,
    pub revision: u32,
    pub pin: bool,
    /// Rate of its iterations relative to the job's.
    pub rate_factor: f32,
    /// Rate of the round's single step, where there is one.
    pub learning_rate: f32,
    #[serde(rename = "rounds")]
    pub aggregation: Aggregation,
    /// Whether the batches differ from the job's.
    pub balanced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lead: Option<u64>,
    pub opened_us: u64,
    /// Workers of a monitored superstep that have not been seen often enough.
    #[serde(skip)]
    pub unobserved: BTreeSet<Incarnation>,
    /// Why it is as it is.
    pub why: Why,
    /// Shards that have closed it, with the pushes each had applied by then.
    pub closed_by: BTreeMap<ShardIndex, u64>,
    /// What the decision rested on: predicted ends of each worker's next iterations.
    pub predicted: Vec<PlanRow>,
    /// Windows that were weighed besides the chosen one.
    #[serde(rename = "weighed", default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    pub span_us: Option<u64>,
    pub predicted_wait_us: Option<u64>,
    pub sync_at_us: Option<u64>,
}

/// What a task works on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskBody {
    Iteration {
        superstep: Superstep,
        range: SampleRange,
        learning_rate: f32,
    },
    Barrier,
    /// Everybody has reached a clock.
    Clock,
    Train,
    Evaluate,
    Snapshot,
}

/// One node of the graph as Redis shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    #[serde(flatten)]
    pub body: TaskBody,
    pub state: TaskState,
    /// How often it was leased.
    pub attempts: u32,
    /// Tasks whose end gates the grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control: Vec<TaskId>,
    /// Tasks whose result the parameter server waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<TaskId>,
    pub created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

impl Task {
    pub(super) fn new(body: TaskBody, unmet: u32, now_us: u64) -> Self {
        Self {
            body,
            state: TaskState::initial(unmet),
            attempts: 0,
            control: Vec::new(),
            version: Vec::new(),
            created_ms: now_us / 1000,
            ended_ms: None,
        }
    }
}

impl TaskBody {
    /// Whether the user wrote it, as opposed to the planner.
    pub fn is_node(&self) -> bool {
        matches!(self, Self::Train | Self::Evaluate | Self::Snapshot)
    }
}
