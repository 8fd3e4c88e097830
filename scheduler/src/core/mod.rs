//! The state machine of the engine: one single-threaded value, inputs in, effects out.
//!
//! [`Core::handle`] takes what happened; [`Core::take_commits`] says what that changed in the store; only when that is
//! committed may the effects be carried out. A job whose engine died is read back with [`Job::load`] and given to
//! [`Core::restore`]: everything that can influence a later decision was in its last commit.

mod barriers;
mod change;
mod clocks;
mod exclusion;
mod explain;
mod fleet;
mod granting;
mod io;
mod job;
mod lately;
mod load;
mod loss;
mod nodes;
mod opening;
mod overrun;
mod placing;
mod reports;
mod slow;
mod state;
mod touched;
mod wire;

pub use change::{CLOSED_SPANS_KEPT, CURVE_POINTS, Commit, Commits, FINISHED_TASKS_KEPT, GONE_WORKERS_KEPT};
pub use exclusion::Exclusion;
pub use explain::{BarrierStory, SlowStory, TaskStory, WorkerStory};
pub use fleet::Core;
pub use io::{
    Barrier, ClockRoster, Effect, Floor, Input, Refused, ShardStand, SnapshotFile, Stand, Submission,
    TaskFault, WorkerAbout,
};
pub use job::Job;
pub use load::{Stored, Unreadable};
pub use state::{Counters, Curve, Member, Phase, Retry, Slow, Spent, Standing};
pub use wire::{Assignment, Blame, Evaluation, Iterated, Outcome, TaskKey, TaskReport, Update, Work};
