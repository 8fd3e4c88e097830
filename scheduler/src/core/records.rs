//! The records of a job and of its tasks. Everything that can influence a later decision is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    change_set::MetricsWindow,
    checkpoints::Checkpoints,
    epoch_losses::EpochLosses,
    evaluating::Evaluations,
    evaluation::{Evaluation, EvaluationPart},
    exclusion::Exclusion,
    lost_shards::LostShard,
    progress::Progress,
    recent_rate::RecentRate,
    series::SeriesSampling,
    shard_protocol::SnapshotFile,
    tasks::ParentTask,
    worker_protocol::Iterated,
};
use crate::{
    fault_code::FaultCode,
    graph::{TaskId, TrainingTaskState},
    ids::{Generation, NodeName, ShardIndex, StateDirId, Superstep},
    samples::{SampleCursor, SampleRange},
    spec::TrainSpec,
    sync::Policy,
};

/// Where a job stands as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for workers.
    Queued,
    /// The shards load the initial parameters.
    Opening,
    /// The shards hold the parameters and the nodes run, or its general tasks do; even while it is paused.
    Running,
    /// All nodes, or all general tasks, have come to their end.
    Done,
    /// It ended before that, and not because somebody wanted it to.
    Failed {
        /// Stable, see docs/errors.md.
        code: FaultCode,
        /// What went wrong, in words.
        reason: String,
    },
    /// Somebody ended it, or it trained for a task that nobody wants any more.
    Canceled,
}

impl Phase {
    /// Why a task of a job that is over did not come to its end, in words.
    pub(super) fn cut_short(&self, cancel_reason: &str) -> String {
        match (self, cancel_reason) {
            (Self::Canceled, reason) if !reason.is_empty() => {
                format!("the job was canceled before it could end: {reason}")
            }
            (Self::Failed { code, reason }, _) => {
                format!("the job failed before it could end: {}", code.in_front_of(reason))
            }
            _ => "the job ended before it could".to_owned(),
        }
    }

    /// Code and reason of a job that failed or was canceled, as far as there are any; `cancel_reason` counts
    /// where it was canceled.
    pub fn why_ended<'a>(&'a self, cancel_reason: &'a str) -> (Option<FaultCode>, &'a str) {
        match self {
            Self::Failed { code, reason } => (Some(*code), reason),
            Self::Canceled => (None, cancel_reason),
            _ => (None, ""),
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
    /// Iterations that every shard has applied, those included of another job from which this one went on.
    pub done: u64,
    /// Iterations whose worker left before any shard had some of them; their samples are handed out again.
    pub lost: u64,
    /// Iterations that were applied in part when their worker left; their samples count as seen.
    pub torn: u64,
    /// Done iterations whose loss or gradient was not finite: they were pushed without weight.
    pub skipped: u64,
    /// The newest of them, with no other iteration between but those whose scale of the loss was too large.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Samples of those.
    #[serde(default)]
    pub samples_skipped_in_a_row: u64,
    /// Samples of done iterations.
    pub samples_done: u64,
    /// Samples of torn iterations.
    pub samples_torn: u64,
    /// Barriers closed on every shard.
    pub barriers: u64,
    /// Predicted waits at them, all workers together; 0 where nothing was predicted.
    pub predicted_wait_us: u64,
    /// Actual waits at those barriers of which all arrivals are known, all workers together.
    pub actual_wait_us: u64,
    /// All waits of workers for others, at barriers and where a policy lets nobody go further ahead, as they
    /// report them.
    #[serde(default)]
    pub waited_us: u64,
    /// Supersteps that were planned again because a worker overran its prediction.
    pub replanned: u64,
    /// Highest lead over the slowest worker that a shard saw at a push.
    pub max_lead: u64,
    /// Iterations, done or torn, that were undone when the job went back to a checkpoint. All other counters
    /// went back too.
    #[serde(default)]
    pub rolled_back: u64,
    /// Samples of those iterations.
    #[serde(default)]
    pub samples_rolled_back: u64,
}

/// What was counted when a generation of the parameters began: what points of earlier ones stand for beyond
/// that is undone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationBegin {
    /// Samples of done iterations, as in the loss curve.
    pub samples_done: u64,
    /// With those of torn ones, as of evaluations. That of an earlier generation, if it is less and no
    /// evaluation has told of it.
    pub counted: u64,
    /// An evaluation has told of that.
    #[serde(default)]
    pub is_told: bool,
}

impl GenerationBegin {
    /// That of the next generation, which begins with so much.
    pub(super) fn next(self, begin: Self) -> Self {
        let counted = if self.is_told { begin.counted } else { begin.counted.min(self.counted) };
        Self { counted, ..begin }
    }
}

impl Counters {
    /// What a generation begins with that begins now.
    pub(super) fn generation_begin(&self) -> GenerationBegin {
        GenerationBegin { samples_done: self.samples_done, counted: self.counted(), is_told: false }
    }

    /// Counts an iteration that is done, of so many samples, if it was skipped, or ends a row of skipped
    /// ones.
    pub(super) fn skip(&mut self, it: &Iterated, samples: u64) {
        self.skipped += u64::from(it.skipped);
        match (it.skipped, it.is_overflow) {
            (false, _) => (self.skipped_in_a_row, self.samples_skipped_in_a_row) = (0, 0),
            (true, true) => {}
            (true, false) => {
                self.skipped_in_a_row += 1;
                self.samples_skipped_in_a_row += samples;
            }
        }
    }
}

/// Job-wide state: everything that is not per worker, superstep or task.
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
    /// Of the present generation.
    #[serde(default)]
    pub generation_begin: GenerationBegin,
    /// For people: how fast it has been in the last seconds.
    #[serde(default)]
    pub recent_rate: RecentRate,
    /// Samples counted in each epoch that is not complete, and how many epochs are.
    pub counted: BTreeMap<u32, u64>,
    pub epochs_complete: u32,
    /// Loss of the newest iteration that was not skipped; once it has ended, what it showed then.
    pub loss: Option<f32>,
    pub submitted_us: u64,
    pub started_us: Option<u64>,
    /// When the shards had opened the present generation of the parameters.
    #[serde(default)]
    pub opened_us: Option<u64>,
    /// For how long no engine led, or it was paused, since it began to train; before that, since it was
    /// submitted or resumed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unled_us: u64,
    pub trained_us: Option<u64>,
    /// For how long it had trained then, see `training_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_for_us: Option<u64>,
    pub ended_us: Option<u64>,
    /// The newest on the test samples.
    pub evaluation: Option<Evaluation>,
    /// The newest on the validation samples.
    #[serde(default)]
    pub validation: Option<Evaluation>,
    pub snapshot: Option<SnapshotFile>,
    /// The job is over, and the shards are still to write its last parameters.
    pub keeping: bool,
    /// Why these are not written yet, or are lost, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_problem: Option<String>,
    /// What the job as a whole waits for, in words.
    pub waiting_for: Option<String>,
    /// Shards without which it cannot go on, and for which it waits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lost_shards: BTreeMap<ShardIndex, LostShard>,
    /// In which state directories of shards the present generation of its parameters lies, as far as that is
    /// known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) state_dirs: BTreeMap<ShardIndex, StateDirId>,
    /// The same of the processes that followed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) standby_dirs: BTreeMap<ShardIndex, StateDirId>,
    /// Nothing more is granted until somebody resumes it.
    #[serde(default)]
    pub paused: bool,
    /// When somebody did that last.
    #[serde(default)]
    pub resumed_us: Option<u64>,
    /// For how long it had trained when it was paused, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_before_pause_us: Option<u64>,
    /// Workers that could not run it, by what identifies their process.
    pub excluded: BTreeMap<String, Exclusion>,
    /// Nodes that failed for a reason that may pass.
    pub retries: BTreeMap<NodeName, Retry>,
    pub curve: SeriesSampling,
    /// What is in no point of the curve yet.
    #[serde(default)]
    pub(super) metrics: MetricsWindow,
    #[serde(default)]
    pub(super) epoch_losses: EpochLosses,
    #[serde(default)]
    pub checkpoints: Checkpoints,
    #[serde(default)]
    pub evaluations: Evaluations,
    /// Workers that came to it, those that left included.
    #[serde(default)]
    pub joined: u32,
    /// Most workers that took part at a time, or were about to.
    #[serde(default)]
    pub most_workers: u32,
    /// Since when none does, while it trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_workers_since_us: Option<u64>,
    /// Workers whose seals are complete.
    #[serde(default)]
    pub seals: u64,
    /// Why somebody canceled it, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cancel_reason: String,
    /// The task of a graph for which it trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trains_for: Option<ParentTask>,
}

impl JobState {
    /// That of a job that was just submitted.
    pub(super) fn new(train: &TrainSpec, generation: Generation, shards: u32, now_us: u64) -> Self {
        let Progress { cursor, counters, counted, epochs_complete, loss, watch, epoch_losses } =
            Progress::at_begin(train);
        let (samples, generation_begin) = (counters.counted(), counters.generation_begin());
        Self {
            phase: Phase::Queued,
            generation,
            shards,
            policy: Policy::new(train.policy),
            cursor,
            next_superstep: Superstep(0),
            clock_revision: 0,
            closed: 0,
            counters,
            generation_begin,
            recent_rate: RecentRate::default(),
            counted,
            epochs_complete,
            loss,
            submitted_us: now_us,
            started_us: None,
            opened_us: None,
            unled_us: 0,
            trained_us: None,
            trained_for_us: None,
            ended_us: None,
            evaluation: None,
            validation: None,
            snapshot: None,
            keeping: false,
            weights_problem: None,
            waiting_for: None,
            lost_shards: BTreeMap::new(),
            state_dirs: BTreeMap::new(),
            standby_dirs: BTreeMap::new(),
            paused: false,
            resumed_us: None,
            trained_before_pause_us: None,
            excluded: BTreeMap::new(),
            retries: BTreeMap::new(),
            curve: SeriesSampling::default(),
            metrics: MetricsWindow::default(),
            epoch_losses,
            checkpoints: Checkpoints::going_on(epochs_complete),
            evaluations: Evaluations::going_on(train, epochs_complete, samples, watch),
            joined: 0,
            most_workers: 0,
            without_workers_since_us: None,
            seals: 0,
            cancel_reason: String::new(),
            trains_for: None,
        }
    }
}

/// A node that is tried again until it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// In a row, so far; from 1.
    pub failures: u32,
    /// When it may be tried again, in epoch µs.
    pub at_us: u64,
    /// Of the newest failure; stable, see docs/errors.md.
    pub code: FaultCode,
    /// What went wrong, in words.
    pub reason: String,
}

/// What a task works on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskBody {
    /// A worker shows that it can run the job, before others have to wait for it.
    Prepare,
    Iteration {
        superstep: Superstep,
        range: SampleRange,
        learning_rate: f32,
    },
    Barrier,
    /// Everybody has reached a clock.
    Clock,
    /// A part of an evaluation while the training runs.
    EvaluatePart {
        part: EvaluationPart,
    },
    Train,
    Evaluate,
    Snapshot,
}

/// One node of the graph as Redis shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    #[serde(flatten)]
    pub body: TaskBody,
    pub state: TrainingTaskState,
    /// How often it was leased.
    pub attempts: u32,
    /// How many of these attempts have failed. Those do not count whose worker could not run the job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
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

pub(super) fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}

impl Task {
    pub(super) fn new(body: TaskBody, unmet: u32, now_us: u64) -> Self {
        Self {
            body,
            state: TrainingTaskState::initial(unmet),
            attempts: 0,
            failures: 0,
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
