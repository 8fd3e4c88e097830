//! The state machine of the engine: one single-threaded value, inputs in, effects out.
//!
//! [`Core::handle`] takes what happened; [`Core::take_commits`] says what that changed in the store; only
//! when that is committed may the effects be carried out. A job whose engine died is read back with
//! [`Job::load`] and given to [`Core::restore`]: everything that can influence a later decision was in its last commit.

mod barriers;
mod best_parameters;
mod change_set;
mod checkpoint_retention;
mod checkpointing;
mod checkpoints;
mod clocks;
mod closing;
mod commit;
mod data_loss;
mod departures;
mod differences;
mod downtime;
mod effects;
mod ending;
mod epoch_losses;
mod evaluated;
mod evaluating;
mod evaluation;
mod evaluation_watch;
mod event;
mod exclusion;
mod explain;
mod explanation;
mod granting;
mod inputs;
mod job;
mod job_phase;
mod joining;
mod json_number;
mod lacking_workers;
mod lost_best;
mod lost_shards;
mod member;
mod nodes;
mod opening;
mod opening_ahead;
mod panics;
mod pausing;
mod placement;
mod progress;
mod recent_rate;
mod records;
mod recovery;
mod refused;
mod releasing;
mod replanning;
mod reports;
mod requested_checkpoints;
mod rollback;
mod series;
mod set_aside;
mod settling;
mod shard_news;
mod shard_protocol;
mod significant;
mod standstill;
mod state_dirs;
mod state_machine;
mod stragglers;
mod submitting;
mod summary;
mod superstep;
mod tasks;
mod training_slots;
mod trainings;
mod turn;
mod untrained;
mod utc;
mod worker_info;
mod worker_protocol;

pub use checkpoints::Checkpoints;
pub use commit::{
    CLOSED_SUPERSTEPS_KEPT, Commit, CommitRefs, Commits, FINISHED_TASKS_KEPT, GONE_WORKERS_KEPT, GraphChanges,
};
pub use effects::{Effect, LastWeights, OpenWith};
pub use evaluating::Evaluations;
pub use evaluation::{
    ClassCount, Evaluation, EvaluationPart, EvaluationSet, EvaluationSums, MOST_COUNTED_CLASSES,
};
pub use event::{Assignee, Begun, Event, EventKind, Happening, NamedWorker, RelativeSpeed, Submitted};
pub use exclusion::Exclusion;
pub use explanation::{
    BarrierExplanation, KeptExplanations, StragglerExplanation, TaskExplanation, WorkerExplanation,
};
pub use inputs::{Cancellation, GraphSubmission, IfTaken, Input, Submission, TaskCancellation, TaskFault};
pub use job::Job;
pub use job_phase::JobPhase;
pub use member::{Member, Membership, Straggler, TimeTotals};
pub use panics::{CorePanic, catch_panic};
pub use progress::KeptCheckpoint;
pub use records::{Counters, Phase, Retry};
pub use recovery::{StoredGraph, StoredJob, Unreadable};
pub use refused::Refused;
pub use requested_checkpoints::RequestedCheckpoint;
pub use series::{SERIES_POINTS, SeriesChanges, SeriesSampling};
pub use shard_protocol::{
    BarrierOrder, ClockRoster, ClosedBarrier, HeldJob, ProgressFloor, PushProgress, Retention, ShardProgress,
    SnapshotFile,
};
pub use significant::significant;
pub use state_dirs::ShardDirs;
pub use state_machine::Core;
pub use stragglers::StragglerNotice;
pub use superstep::SuperstepState;
pub use tasks::{GraphCheck, InvalidGraph, MAX_TASKS, TaskJob, Trained};
pub use worker_info::WorkerInfo;
pub use worker_protocol::{Assignment, Blame, GradientUse, Iterated, Outcome, TaskKey, TaskReport, Work};
