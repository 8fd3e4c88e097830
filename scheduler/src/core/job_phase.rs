//! Where a job stands, as the engine tells and clients read: one list of words for both.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{job::Job, records::Phase};

/// Where a job stands, as people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// Waits for workers.
    Queued,
    /// The shards load the initial parameters.
    Opening,
    /// Its iterations, nodes or general tasks are given out to workers.
    Running,
    /// Nothing more of it is given out until somebody resumes it.
    Paused,
    /// Somebody has canceled it, and what runs has some time to end.
    Canceling,
    /// It has come to its end.
    Done,
    /// It could not come to its end: code and reason say why.
    Failed,
    /// Somebody wanted it to end before.
    Canceled,
    /// What is stored of it cannot be read. Nothing but `id`, `state`, `code`, `reason` and `problem` is
    /// known.
    Damaged,
}

impl JobPhase {
    /// Whether nothing follows unless somebody mends it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Canceled | Self::Damaged)
    }

    /// As people see it in Redis and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Canceling => "canceling",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Damaged => "damaged",
        }
    }
}

impl fmt::Display for JobPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Phase {
    /// As people are told of a job that nobody has paused.
    pub fn shown(&self) -> JobPhase {
        match self {
            Self::Queued => JobPhase::Queued,
            Self::Opening => JobPhase::Opening,
            Self::Running => JobPhase::Running,
            Self::Done => JobPhase::Done,
            Self::Failed { .. } => JobPhase::Failed,
            Self::Canceled => JobPhase::Canceled,
        }
    }
}

impl Job {
    /// Where it stands, as people are told.
    pub fn shown(&self) -> JobPhase {
        match self.state.paused && !self.state.phase.is_over() {
            true => JobPhase::Paused,
            false => self.state.phase.shown(),
        }
    }
}
