//! How a command ends that met an error of a library: the exit code and the hint.

use syncline_autodiff::AutodiffError;
use syncline_engine::{service::EngineError, store::StoreError};
use syncline_kit::KitError;
use syncline_onnx::OnnxError;
use syncline_ps::PsError;
use syncline_rpc::{EngineFault, InactiveReason};
use syncline_runtime::BackendError;
use syncline_workers::{
    client::{ClientError, FetchError, FindError, TaskError},
    export::ExportError,
    isolation::ModelError,
    predict::PredictError,
    submit::SubmitError,
    worker::WorkerError,
};

use super::{CliError, Exit, Failure, errors_page::what_to_do, reader_has_gone};

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        match error {
            CliError::Written { source, .. } if reader_has_gone(&source) => Self::reader_gone(),
            error => {
                let (exit, hint) = (error.exit(), error.hint());
                Self::new(exit, error, hint)
            }
        }
    }
}

impl From<KitError> for Failure {
    fn from(error: KitError) -> Self {
        let exit = if matches!(error, KitError::Named { .. }) { Exit::Usage } else { Exit::Internal };
        Self::of(exit, error)
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        CliError::from(error).into()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Unreachable { .. } => Exit::Unreachable,
            ClientError::Refused(fault) => exit_of(fault),
            ClientError::JobFailed { .. }
            | ClientError::JobCanceled { .. }
            | ClientError::WeightsLost { .. } => Exit::JobFailed,
            _ => Exit::Internal,
        };
        // Whoever let it fail is elsewhere, and said no more than the code.
        if let ClientError::JobFailed { code, .. } = &error
            && let (Some(advice), Some(hint)) = (what_to_do(code), error.hint())
        {
            return Self::new(exit, error, format!("{advice}; {hint}"));
        }
        Self::of(exit, error)
    }
}

impl From<PredictError> for Failure {
    fn from(error: PredictError) -> Self {
        let exit = match &error {
            PredictError::Backend(_) => Exit::Internal,
            _ => Exit::Usage,
        };
        Self::of(exit, error)
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        Self::of(Exit::Usage, error)
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Engine(error) => error.into(),
            FetchError::Shard(error) => error.into(),
            error => {
                // What was typed is right: the job has not what is asked for, or not yet.
                let is_refusal = matches!(
                    error,
                    FetchError::NoSnapshotYet { .. }
                        | FetchError::NoSnapshot { .. }
                        | FetchError::WeightsPending { .. }
                        | FetchError::WeightsLost { .. }
                );
                let exit = if is_refusal { Exit::JobFailed } else { Exit::Usage };
                Self::of(exit, error)
            }
        }
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let exit = match error {
            TaskError::Engine(error) => return error.into(),
            TaskError::Shard(error) => return error.into(),
            TaskError::Id(_) | TaskError::Call(_) => Exit::Usage,
            _ => Exit::JobFailed,
        };
        Self::of(exit, error)
    }
}

fn exit_of(fault: &EngineFault) -> Exit {
    match fault {
        EngineFault::InvalidJob { .. } => Exit::Usage,
        EngineFault::Store { .. }
        | EngineFault::StoreNearlyFull { .. }
        | EngineFault::NotActive {
            why: InactiveReason::Store { .. } | InactiveReason::StoreLoading { .. },
        } => Exit::Redis,
        EngineFault::MissingShards { .. }
        | EngineFault::SilentShard { .. }
        | EngineFault::NotActive { .. } => Exit::Unreachable,
        _ => Exit::JobFailed,
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = if matches!(error, StoreError::Address { .. } | StoreError::PasswordFile { .. }) {
            Exit::Usage
        } else {
            Exit::Redis
        };
        Self::of(exit, error)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            listen => Self::of(Exit::Usage, listen),
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::of(Exit::Internal, error)
    }
}

impl From<OnnxError> for Failure {
    fn from(error: OnnxError) -> Self {
        let hint = error.hint().unwrap_or_else(|| "export the model again".to_owned());
        Self::new(Exit::Usage, error, hint)
    }
}

impl From<PsError> for Failure {
    fn from(error: PsError) -> Self {
        let exit = match &error {
            PsError::BindWithoutToken { .. }
            | PsError::NoAddress { .. }
            | PsError::StateDirInUse { .. }
            | PsError::SavedByOtherShard { .. }
            | PsError::WrongPosition { .. }
            | PsError::PositionTaken { .. } => Exit::Usage,
            PsError::EngineRefused { .. } | PsError::Unreachable { .. } | PsError::Greeting { .. } => {
                Exit::Unreachable
            }
            _ => Exit::Internal,
        };
        Self::of(exit, error)
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Engine(error) => error.into(),
            SubmitError::Upload(error) => error.into(),
            // Nothing has left this machine yet: something that was written down is wrong.
            error => Self::of(Exit::Usage, error),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        SubmitError::from(error).into()
    }
}

impl From<AutodiffError> for Failure {
    fn from(error: AutodiffError) -> Self {
        SubmitError::from(error).into()
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let error = match error {
            WorkerError::Kit(error) => return error.into(),
            other => other,
        };
        let exit =
            if matches!(error, WorkerError::Unreachable { .. }) { Exit::Unreachable } else { Exit::Internal };
        Self::of(exit, error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::cli::exported::ExportError;

    #[test]
    fn a_reader_of_what_is_written_that_has_gone_away_is_no_failure() {
        for (kind, exit) in [(io::ErrorKind::BrokenPipe, Exit::Ok), (io::ErrorKind::StorageFull, Exit::Usage)]
        {
            let (path, source) = (|| "/dev/fd/63".into(), || io::Error::from(kind));
            let failures: [Failure; 2] = [
                ExportError::Write { path: path(), source: source() }.into(),
                CliError::Written { path: path(), source: source() }.into(),
            ];
            assert!(failures.iter().all(|failure| failure.exit() == exit), "{kind}: {failures:?}");
        }
    }
}
