//! Why a step of a round did not come to its end.

use syncline_workers::{
    client::{ClientError, FetchError, TaskError},
    export::ExportError,
};

/// Why a step of a round did not come to its end.
#[derive(Debug)]
pub(super) enum RoundError {
    /// Somebody was away: it is asked again.
    Passing(String),
    /// What came is not what has to come.
    Different(String),
}

impl From<ClientError> for RoundError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::JobFailed { .. } | ClientError::JobCanceled { .. } => {
                Self::Different(error.to_string())
            }
            other => Self::Passing(other.to_string()),
        }
    }
}

impl From<TaskError> for RoundError {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Engine(error) => error.into(),
            TaskError::Shard(error) => Self::Passing(error.to_string()),
            other => Self::Different(other.to_string()),
        }
    }
}

impl From<FetchError> for RoundError {
    fn from(error: FetchError) -> Self {
        Self::Passing(error.to_string())
    }
}

impl From<ExportError> for RoundError {
    fn from(error: ExportError) -> Self {
        Self::Different(error.to_string())
    }
}
