//! Why a task, or a whole worker, failed.

use syncline_kit::KitError;
use syncline_onnx::OnnxError;
use syncline_ps::PsError;
use syncline_rpc::{CallError, EngineFault, ShardFault, threads::NoThread};
use syncline_runtime::{BackendError, Device};
use syncline_scheduler::{core::Blame, fault_code::FaultCode, graph::TaskId, ids::Incarnation};

use crate::{data::DataError, functions::RegisteredTwice};

/// Why a task, or a whole worker, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// ONNX Runtime cannot be loaded, or refused a graph, or failed to run it.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// ONNX Runtime, or what the device needs, is neither found nor fetched.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// The training graph of a job cannot be read.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The data of a job cannot be read, is other data, or does not fit.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A shard cannot be reached, or refused a blob, a pull or a push.
    #[error(transparent)]
    Ps(#[from] PsError),
    /// The engine did not give the setup of a job.
    #[error(transparent)]
    Engine(#[from] EngineFault),
    /// A function has the name under which workers run ONNX models.
    #[error(transparent)]
    Function(#[from] RegisteredTwice),
    /// An engine is there, and turns this worker away or has a bug: waiting cannot help.
    #[error("[E350] the engine at {address} cannot be used")]
    Unreachable {
        /// With several engines all their addresses.
        address: String,
        /// What it said.
        #[source]
        source: CallError,
    },
    /// An iteration of a job whose `on_nan` is `fail`.
    #[error(
        "[E351] {what} became {value} in iteration {task} on worker {worker}; {}",
        against_not_finite(*untrained)
    )]
    NotFinite {
        /// The loss, the gradient, a running statistic, or the change of a local round.
        what: &'static str,
        /// Loss, or norm of the others: infinite or no number.
        value: f64,
        /// The iteration's task.
        task: TaskId,
        /// Who computed it.
        worker: Incarnation,
        /// Whether no step had changed the parameters yet.
        untrained: bool,
    },
    /// Graph or samples are not what the job's spec says of them.
    #[error("[E352] the training graph does not fit the job: {what}")]
    Graph {
        /// What differs, in words.
        what: String,
    },
    /// A thread that trains or runs general tasks cannot be started.
    #[error(transparent)]
    Thread(#[from] NoThread),
    /// A thread that trains has panicked.
    #[error("[E353] the executor thread ended: {cause}")]
    Executor {
        /// Why it did.
        cause: String,
    },
    /// The worker waits for it.
    #[error("[E355] the engine at {address} cannot be used yet: {cause}")]
    EngineAway {
        /// With several engines all their addresses.
        address: String,
        /// Why nobody can be asked, with what lies below it.
        cause: String,
    },
    /// The process should end, so that it is started anew: nothing can end the thread that hangs.
    #[error("[E354] worker {worker} still hangs in {task}, {after_s} s after it should have ended")]
    Stuck {
        /// Which one.
        worker: Incarnation,
        /// Task that it is at, or `no task`.
        task: String,
        /// How long its end was waited for.
        after_s: u64,
    },
    /// The process should end, so that it is started anew: what CUDA has met stays as long as it.
    #[error("[E652] {device} computes nothing more for this process: {reason}")]
    DeviceLost {
        /// Device that it computes on.
        device: Device,
        /// What a small product came to.
        reason: String,
    },
    /// The iteration neither begins a local round nor is the next one of the open round.
    #[error("[E460] iteration {seq} of the local round {first} to {last} cannot run: {open}")]
    OutOfRound {
        /// Number of the iteration within the incarnation.
        seq: u64,
        /// First iteration of the round that it was granted in.
        first: u64,
        /// Last iteration of that round.
        last: u64,
        /// What would come next, in words.
        open: String,
    },
}

/// What helps against a step that gives no number. No rate of steps is to blame before the first one.
fn against_not_finite(untrained: bool) -> &'static str {
    match untrained {
        false => "a smaller learning rate or on_nan = \"skip\" may help",
        true => {
            "no step has changed the parameters yet: look for samples of which the model makes no number, such as a division by zero or the \
             logarithm of one, and at the values that it begins with; on_nan = \"skip\" passes over such batches"
        }
    }
}

impl WorkerError {
    /// Whether another worker may succeed where this one failed.
    #[doc(hidden)]
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotFinite { .. } => Blame::Job,
            // A disk can be emptied, memory comes free, and the job goes on under others: another try may go
            // well.
            Self::Ps(error) if error.may_pass() => Blame::Worker,
            Self::Ps(PsError::Refused {
                fault:
                    ShardFault::Fenced { .. }
                    | ShardFault::WrongGeneration { .. }
                    | ShardFault::Sealed { .. }
                    | ShardFault::Closed { .. },
            }) => Blame::Worker,
            Self::Ps(PsError::Refused { .. } | PsError::Length { .. }) => Blame::Job,
            // The digest says that the bytes are the job's; what stays on the disk is looked at again.
            Self::Data(e) if !e.is_machine_specific() => Blame::Job,
            // A file, a library, memory or a connection that this machine lacks.
            _ => Blame::Worker,
        }
    }

    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Ps(e) => e.code(),
            Self::Backend(e) => e.code(),
            Self::Kit(e) => e.code(),
            Self::Model(e) => e.code(),
            Self::Data(e) => e.code(),
            Self::Engine(fault) => return fault.code(),
            Self::Function(twice) => twice.code(),
            Self::Thread(none) => none.code(),
            Self::Unreachable { .. } => "E350",
            Self::NotFinite { .. } => "E351",
            Self::Graph { .. } => "E352",
            Self::Executor { .. } => "E353",
            Self::Stuck { .. } => "E354",
            Self::EngineAway { .. } => "E355",
            Self::DeviceLost { .. } => "E652",
            Self::OutOfRound { .. } => "E460",
        })
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Backend(source) => return source.hint(),
            Self::Kit(source) => return source.hint(),
            Self::Model(source) => return source.hint(),
            Self::Data(source) => return source.hint(),
            Self::Ps(source) => return source.hint(),
            Self::Engine(source) => return source.hint(),
            Self::Function(source) => return source.hint(),
            Self::Thread(none) => return none.hint(),
            Self::Unreachable { .. } => {
                "name the engine with --engine, and the token file that belongs to it with --token-file"
            }
            Self::NotFinite { untrained, .. } => against_not_finite(*untrained),
            Self::EngineAway { .. } => "see whether the engine runs, and can be reached from here",
            Self::Stuck { .. } => {
                "see whether the file system that the data is on answers, and whether a function ends that looks at \
                 `Context::canceled`; whatever started this worker may start it again"
            }
            Self::DeviceLost { .. } => {
                "the process ends, and a new one may use the GPU: whatever started this worker may start it again; if it does not come \
                 up, or this comes again, see `nvidia-smi` and the `Xid` lines of the kernel's log"
            }
            Self::Graph { .. } | Self::Executor { .. } | Self::OutOfRound { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use syncline_scheduler::ids::ContentDigest;

    use syncline_runtime::Device;

    use super::*;
    use crate::data::{FileError, ValueError};

    #[test]
    fn what_the_core_decides_by_is_called_by_the_codes_that_it_knows() {
        let run: WorkerError = BackendError::Run { reason: "out of memory".into() }.into();
        assert_eq!(run.code(), FaultCode::COMPUTATION_FAILED);
        let memory =
            BackendError::DeviceMemory { device: Device::Cuda(0), wanted: None, reason: String::new() };
        assert_eq!(WorkerError::from(memory).code(), FaultCode::DEVICE_MEMORY);
    }

    #[test]
    fn a_shard_whose_disk_or_memory_fails_is_no_fault_of_the_job_and_what_it_refuses_is() {
        let refused = |fault| WorkerError::from(PsError::Refused { fault });
        let io = refused(ShardFault::Io { what: "cannot hold the round".into(), cause: "no memory".into() });
        assert_eq!((io.blame(), io.code()), (Blame::Worker, FaultCode::SHARD_IO));
        let second =
            ShardFault::SecondAway { digest: ContentDigest::LOWEST, cause: "it does not answer".into() };
        assert_eq!(refused(second).blame(), Blame::Worker);
        assert_eq!(refused(ShardFault::Closed { job: "digits".parse().unwrap() }).blame(), Blame::Worker);
        assert_eq!(refused(ShardFault::Invalid { what: "a chunk too many".into() }).blame(), Blame::Job);
    }

    #[test]
    fn data_that_no_worker_can_use_fails_the_job_and_a_missing_file_the_worker_alone() {
        let path = || PathBuf::from("data.csv");
        let of = |error: DataError| WorkerError::from(error);
        let id = ValueError::IdOutOfRange {
            path: path(),
            row: 1,
            column: 1,
            found: 20,
            input: "ids".into(),
            rows: 20,
        };
        assert_eq!(of(id.into()).blame(), Blame::Job);
        let missing = FileError::Io { path: path(), source: std::io::ErrorKind::NotFound.into() };
        assert_eq!(of(missing.into()).blame(), Blame::Worker);
        let other = FileError::Digest {
            files: "d.csv".into(),
            expected: ContentDigest::LOWEST,
            found: ContentDigest::from_bytes([1; 32]),
        };
        assert_eq!(of(other.into()).blame(), Blame::Worker);
    }
}
