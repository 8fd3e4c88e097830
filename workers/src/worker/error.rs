//! Why a task, or a whole worker, failed.

use syncline_engine::rpc::{CallError, EngineFault};
use syncline_kit::KitError;
use syncline_onnx::OnnxError;
use syncline_ps::PsError;
use syncline_runtime::BackendError;
use syncline_scheduler::core::Blame;

use crate::{data::DataError, functions::RegisteredTwice};

/// Why a task, or a whole worker, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Kit(#[from] KitError),
    #[error(transparent)]
    Model(#[from] OnnxError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Ps(#[from] PsError),
    #[error(transparent)]
    Engine(#[from] EngineFault),
    #[error(transparent)]
    Function(#[from] RegisteredTwice),
    #[error("[E350] the engine at {address} cannot be used")]
    Unreachable {
        address: String,
        #[source]
        source: CallError,
    },
    #[error(
        "[E351] {what} became {value} in iteration {task} on worker {worker}; a smaller learning rate or on_nan = \"skip\" may help"
    )]
    NotFinite { what: &'static str, value: f64, task: String, worker: String },
    #[error("[E352] the training graph does not fit the job: {what}")]
    Graph { what: String },
    #[error("[E353] the executor thread ended: {cause}")]
    Executor { cause: String },
    /// The worker waits for it.
    #[error("[E355] the engine at {address} cannot be used yet: {cause}")]
    EngineAway { address: String, cause: String },
    /// The process should end, so that it is started anew: nothing can end the thread that hangs.
    #[error("[E354] worker {worker} still hangs in {task}, {after_s} s after it should have ended")]
    Stuck { worker: String, task: String, after_s: u64 },
    #[error("[E460] iteration {seq} of the local round {first} to {last} cannot run: {open}")]
    OutOfRound { seq: u64, first: u64, last: u64, open: String },
}

impl WorkerError {
    /// Whether another worker may succeed where this one failed.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotFinite { .. } => Blame::Job,
            Self::Ps(PsError::Refused { .. } | PsError::Length { .. }) => Blame::Job,
            // The digest says that the bytes are the job's.
            Self::Data(e) if !e.is_machine_specific() => Blame::Job,
            // A file, a library, memory or a connection that this machine lacks.
            _ => Blame::Worker,
        }
    }

    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> String {
        match self {
            Self::Ps(e) => e.code().to_owned(),
            Self::Backend(e) => e.code().to_owned(),
            Self::Model(e) => e.code().to_owned(),
            Self::Data(e) => e.code().to_owned(),
            other => {
                let text = other.to_string();
                text.strip_prefix('[')
                    .and_then(|t| t.split_once(']'))
                    .map_or("E350", |(code, _)| code)
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn data_that_no_worker_can_use_fails_the_job_and_a_missing_file_the_worker_alone() {
        let path = || PathBuf::from("data.csv");
        let id = DataError::IdOutOfRange {
            path: path(),
            row: 1,
            column: 1,
            found: 20,
            input: "ids".into(),
            rows: 20,
        };
        assert_eq!(WorkerError::from(id).blame(), Blame::Job);
        let missing = DataError::Io { path: path(), source: std::io::ErrorKind::NotFound.into() };
        assert_eq!(WorkerError::from(missing).blame(), Blame::Worker);
        let other = DataError::Digest { expected: "a".into(), found: "b".into() };
        assert_eq!(WorkerError::from(other).blame(), Blame::Worker);
    }
}
