//! The lines of an export.

use serde::{Deserialize, Serialize};
use syncline_rpc::{JobRecord, StreamEntry};
use syncline_scheduler::{
    core::{BarrierExplanation, TaskExplanation},
    ids::JobId,
    tasks::TaskView,
};

/// Raised with every change of what a line holds.
pub(super) const VERSION: u32 = 3;
/// What every export begins with, of whatever version.
pub(super) const MARK: &str = r#"{"syncline_export":"#;
/// Most bytes of one line: the job with all its workers is the longest, with a few kilobytes for each.
pub(super) const MAX_LINE_BYTES: u64 = 16 << 20;
/// Most bytes of the first line, and of the last.
pub(super) const MAX_EDGE_BYTES: u64 = 1 << 10;

/// The part of the first line that stays the same in every version.
#[derive(Debug, Deserialize)]
pub(super) struct Version {
    pub(super) syncline_export: u32,
}

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Header {
    /// Stays the first field, see [`MARK`].
    pub(super) syncline_export: u32,
    pub(super) job: JobId,
    /// When the engine was asked, by the clock of who asked: ages are told as of then.
    pub(super) exported_ms: u64,
    /// The release that wrote it, for people.
    pub(super) release: String,
}

/// Every other line. The job comes first, then events, then tasks by their numbers; or points, evaluations,
/// barriers and nodes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Job(JobRecord),
    Event(StreamEntry),
    /// Of the loss curve of a job that trains.
    Point(StreamEntry),
    /// Of the same.
    Evaluation(StreamEntry),
    /// Of a job of general tasks.
    Task(TaskView),
    /// Of a job that trains.
    Barrier(BarrierExplanation),
    /// An iteration, barrier, clock or node of a job that trains.
    Node(TaskExplanation),
    End(End),
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// Of all lines before this one.
    pub(super) bytes: u64,
}
