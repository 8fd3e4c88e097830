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
    submit::SubmitError,
    worker::WorkerError,
};

use super::{CliError, Exit, Failure, errors_page::what_to_do};

const REPORT: &str = "this should not happen; please report it with the log";

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        let (exit, hint) = (error.exit(), error.hint());
        Self::new(exit, error, hint)
    }
}

impl From<KitError> for Failure {
    fn from(error: KitError) -> Self {
        let hint = error.hint();
        let exit = if matches!(error, KitError::Named { .. }) { Exit::Usage } else { Exit::Internal };
        Self::new(exit, error, hint)
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
            ClientError::JobFailed { .. } | ClientError::JobCanceled { .. } => Exit::JobFailed,
            _ => Exit::Internal,
        };
        let hint = match &error {
            // Whoever let it fail is elsewhere, and said no more than the code.
            ClientError::JobFailed { code, .. } => match what_to_do(code) {
                Some(advice) => format!("{advice}; {}", error.hint()),
                None => error.hint(),
            },
            _ => error.hint(),
        };
        Self::new(exit, error, hint)
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        let hint = error.hint();
        Self::new(Exit::Usage, error, hint)
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Engine(error) => error.into(),
            FetchError::Shard(error) => error.into(),
            error => {
                // What was typed is right: the job has not what is asked for.
                let is_refusal = matches!(error, FetchError::NoSnapshot { .. });
                let (exit, hint) = (if is_refusal { Exit::JobFailed } else { Exit::Usage }, error.hint());
                Self::new(exit, error, hint)
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
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}

fn exit_of(fault: &EngineFault) -> Exit {
    match fault {
        EngineFault::InvalidJob(_) => Exit::Usage,
        EngineFault::Store { .. } | EngineFault::NotActive { why: InactiveReason::Store { .. } } => {
            Exit::Redis
        }
        EngineFault::MissingShards { .. } | EngineFault::NotActive { .. } => Exit::Unreachable,
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
        let hint = match &error {
            StoreError::Locked { password_file: Some(file), .. } => {
                format!("write the password of that server into {}, and nothing else", file.display())
            }
            StoreError::Locked { .. } => {
                "write the password into the address, redis://:PASSWORD@HOST:PORT/, best as SYNCLINE_REDIS in the environment, or name a file that holds it with --redis-password-file".into()
            }
            StoreError::PasswordFile { .. } => {
                "name a file with the password of the Redis server, and nothing else in it".into()
            }
            _ => "see whether a Redis server runs there: `redis-cli -u URL ping`; --redis names another".into(),
        };
        Self::new(exit, error, hint)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            listen => Self::new(
                Exit::Usage,
                listen,
                "another program may listen there: name another address with --listen; port 0 takes a free one",
            ),
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        let hint = error.hint().unwrap_or(REPORT);
        Self::new(Exit::Internal, error, hint)
    }
}

impl From<OnnxError> for Failure {
    fn from(error: OnnxError) -> Self {
        let hint = error.hint().unwrap_or("export the model again");
        Self::new(Exit::Usage, error, hint)
    }
}

impl From<PsError> for Failure {
    fn from(error: PsError) -> Self {
        let exit = match &error {
            PsError::BindWithoutToken { .. }
            | PsError::StateDirInUse { .. }
            | PsError::SavedByOtherShard { .. }
            | PsError::WrongPosition { .. }
            | PsError::PositionTaken { .. } => Exit::Usage,
            PsError::EngineRefused { .. } | PsError::Unreachable { .. } | PsError::Greeting { .. } => {
                Exit::Unreachable
            }
            _ => Exit::Internal,
        };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Engine(error) => error.into(),
            SubmitError::Upload(error) => error.into(),
            // Nothing has left this machine yet: something that was written down is wrong.
            error => {
                let hint = error.hint();
                Self::new(Exit::Usage, error, hint)
            }
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
        let (exit, hint) = match &error {
            WorkerError::Unreachable { .. } => (
                Exit::Unreachable,
                "name the engine with --engine, and the token file that belongs to it with --token-file",
            ),
            WorkerError::Stuck { .. } => (
                Exit::Internal,
                "see whether the file system that the data is on answers; whatever started this worker may start it again",
            ),
            WorkerError::Backend(error) => (Exit::Internal, error.hint().unwrap_or(REPORT)),
            _ => (Exit::Internal, REPORT),
        };
        Self::new(exit, error, hint)
    }
}
