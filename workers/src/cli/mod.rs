//! The subcommands of `syncline` that compute or know models.

mod model;
mod onnx_report;
mod snapshot_report;
mod submit;
mod worker;

use syncline_engine::cli::{Exit, Failure, say};
use syncline_kit::Device;
use syncline_ps::PsError;

use crate::{
    apart::ModelHost,
    backend::{BackendError, Runtime},
    onnx::OnnxError,
    submit::SubmitError,
    worker::WorkerError,
};

/// The subcommands of this crate; the binary flattens them into its own.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run one worker: it computes iterations on ONNX Runtime
    Worker(worker::WorkerArgs),
    /// Submit a job from a file
    Submit(submit::SubmitArgs),
    /// Look into model files
    #[command(subcommand)]
    Model(model::ModelCommand),
}

impl Command {
    /// Runs to the end.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Worker(args) => worker::run(args),
            Self::Submit(args) => submit::run(&args),
            Self::Model(command) => model::run(&command),
        }
    }
}

/// Where models are loaded that come from elsewhere: in a child, with the ONNX Runtime that is found or fetched here.
fn models() -> Result<ModelHost, Failure> {
    Ok(ModelHost::ChildProcess(syncline_kit::for_device(Device::Cpu, &say)?.onnxruntime.path))
}

/// Finds ONNX Runtime for a device, fetching it if need be, loads it, and tries it there.
fn load_runtime_for(device: Device) -> Result<Runtime, Failure> {
    let parts = syncline_kit::for_device(device, &say)?;
    Runtime::load_for(device, &parts).map_err(backend_failure)
}

const REPORT: &str = "this should not happen; please report it with the log";

fn backend_failure(error: BackendError) -> Failure {
    let hint = error.hint().unwrap_or(REPORT);
    Failure::new(Exit::Internal, error, hint)
}

fn model_failure(error: OnnxError) -> Failure {
    let hint = error.hint().unwrap_or("export the model again");
    Failure::new(Exit::Usage, error, hint)
}

/// How a command ends that a shard of the parameter server failed.
pub fn ps_failure(error: PsError) -> Failure {
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
    Failure::new(exit, error, hint)
}

fn submit_failure(error: SubmitError) -> Failure {
    match error {
        SubmitError::Engine(error) => error.into(),
        SubmitError::Upload(error) => ps_failure(error),
        // Nothing has left this machine yet: something that was written down is wrong.
        error => {
            let hint = error.hint();
            Failure::new(Exit::Usage, error, hint)
        }
    }
}

fn worker_failure(error: WorkerError) -> Failure {
    let (exit, hint) = match &error {
        WorkerError::Unreachable { .. } => (
            Exit::Unreachable,
            "name the engine with --engine, and the token file that belongs to it with --token-file",
        ),
        WorkerError::Backend(error) => (Exit::Internal, error.hint().unwrap_or(REPORT)),
        _ => (Exit::Internal, REPORT),
    };
    Failure::new(exit, error, hint)
}
