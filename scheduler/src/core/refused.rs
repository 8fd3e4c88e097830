//! Why an input of a user is refused.

use super::{job_phase::JobPhase, tasks::InvalidGraph};
use crate::{
    fault_code::FaultCode,
    ids::JobId,
    spec::InvalidJob,
    tasks::{TaskIndex, TaskState},
};

/// Why an input of a user was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The spec of a training is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// A graph, or a part of one, is not valid.
    #[error(transparent)]
    InvalidGraph(#[from] InvalidGraph),
    /// The name is taken by another job, and replacing was not asked for.
    #[error("[E130] job {job} exists already{differs}")]
    Duplicate {
        /// Name that is taken.
        job: JobId,
        /// In what the job that is there differs, in words that begin with a comma.
        differs: String,
    },
    /// A user submits under a name such as `sweep~3`.
    #[error("[E145] only the engine gives names such as {job}, to trainings of tasks")]
    Reserved {
        /// Name that was asked for.
        job: JobId,
    },
    /// There is none of that name, or the part of a graph has the nonce of another submission.
    #[error("[E131] there is no job {job}")]
    Unknown {
        /// Name that was asked for.
        job: JobId,
    },
    /// The name is that of another job by now.
    #[error("[E650] job {job} is another one by now: the one that was meant was replaced, or deleted")]
    Replaced {
        /// Name that was asked for.
        job: JobId,
    },
    /// The job has come to its end before.
    #[error("[E137] job {job} is over ({state}): there is nothing to cancel, pause or resume")]
    Over {
        /// Job that was to be canceled, paused or resumed.
        job: JobId,
        /// How it ended.
        state: JobPhase,
    },
    /// The job has no such task, or its graph has not come as a whole.
    #[error("[E138] job {job} has no task {task}")]
    UnknownTask {
        /// Job that was asked for.
        job: JobId,
        /// Index that none of its tasks has.
        task: TaskIndex,
    },
    /// The task has come to its end before.
    #[error("[E599] task {task} of job {job} is over ({state}): there is nothing to cancel")]
    TaskOver {
        /// Job that it belongs to.
        job: JobId,
        /// Task that was to be canceled.
        task: TaskIndex,
        /// How it ended.
        state: TaskState,
    },
    /// A checkpoint was asked for, and none can be made.
    #[error("[E638] no checkpoint of job {job} can be kept now: {reason}")]
    NoCheckpointNow {
        /// Job of either kind that goes on.
        job: JobId,
        /// In words.
        reason: String,
    },
    /// The job must be canceled first.
    #[error("[E140] job {job} is {state}: only a job that is over can be deleted or replaced")]
    NotOver {
        /// Job that was to be deleted or replaced.
        job: JobId,
        /// Where it stands.
        state: JobPhase,
    },
}

impl Refused {
    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Invalid(invalid) => return invalid.code(),
            Self::InvalidGraph(invalid) => return invalid.code(),
            Self::Duplicate { .. } => "E130",
            Self::Reserved { .. } => "E145",
            Self::Unknown { .. } => "E131",
            Self::Replaced { .. } => "E650",
            Self::Over { .. } => "E137",
            Self::UnknownTask { .. } => "E138",
            Self::TaskOver { .. } => "E599",
            Self::NoCheckpointNow { .. } => "E638",
            Self::NotOver { .. } => "E140",
        })
    }
}
