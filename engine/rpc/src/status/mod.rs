//! Jobs, workers and engines as a client sees them: typed, and as JSON with numbers as numbers.
//!
//! The engine passes on what stands in Redis, where everything is text (docs/redis-schema.md). Here that text
//! becomes values, once, and an engine that says something else than this release knows is an error instead
//! of an empty field. docs/json.md lists the fields.

mod cluster;
mod event_text;
mod figures;
mod history;
mod job;
mod member;
mod task_counts;
mod text;

use std::time::{SystemTime, UNIX_EPOCH};

pub use cluster::{EngineStatus, LiveWorker, RUN_MODEL, SILENCE_SHOWN_AFTER};
pub use event_text::event_fields;
pub use figures::Figures;
pub use history::{Entry, EvaluationPoint, JobEvent, MetricsPoint, mark_best};
pub use job::{JobList, JobStatus};
pub use member::{JobView, MemberState, MemberStatus};
pub use syncline_scheduler::core::{EventKind, JobPhase};
pub use task_counts::TaskCounts;
pub use text::UnknownFields;

/// Now, on the clock of this machine, as moments of jobs are told: milliseconds since the epoch of Unix.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
