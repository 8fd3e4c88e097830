//! Why ONNX Runtime could not be used, or did not do what it was asked.

use std::path::PathBuf;

use syncline_kit::Device;

use syncline_onnx::{CompileError, ElementType, OnnxError};

use crate::shortage::{is_device_failure, is_of_the_machine};

/// Why loading or running failed. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// No file where the library should be.
    #[error("[E320] no ONNX Runtime library at {}", path.display())]
    NotFound {
        /// Path as it was given.
        path: PathBuf,
    },
    /// The file is there, but is no ONNX Runtime that can be used.
    #[error("[E321] cannot load ONNX Runtime from {}: {reason}", path.display())]
    Load {
        /// File that was tried, links resolved.
        path: PathBuf,
        /// What the loader says, or that the library is too old.
        reason: String,
    },
    /// A process has one ONNX Runtime, and another one is loaded already.
    #[error("[E322] ONNX Runtime is loaded from {}, cannot load {} as well", loaded.display(), asked.display())]
    AlreadyLoaded {
        /// File that this process uses until it ends.
        loaded: PathBuf,
        /// File that was asked for now, links resolved.
        asked: PathBuf,
    },
    /// The bytes are no model.
    #[error("model refused: {0}")]
    Model(#[from] OnnxError),
    /// ONNX Runtime does not accept the model.
    #[error("[E323] onnx runtime refused the model: {reason}")]
    Compile {
        /// What ONNX Runtime says, in its words.
        reason: String,
    },
    /// A model that would end the process.
    #[error("[E251] node `{node}` ({op}) would crash onnx runtime: {reason}")]
    Hazard {
        /// Its operator.
        op: String,
        /// Name of the node, or of its first output if it has none.
        node: String,
        /// What about it is known to crash, in words.
        reason: String,
    },
    /// An input that the model does not have.
    #[error("[E324] model has no input `{name}`, its inputs are {known}")]
    UnknownInput {
        /// Name that was given.
        name: String,
        /// Names of the model's inputs, with commas between.
        known: String,
    },
    /// An input that was not given, or given twice.
    #[error("[E325] input `{name}` was given {times} times")]
    InputCount {
        /// An input of the model.
        name: String,
        /// 0, or 2 and more.
        times: usize,
    },
    /// Data and shape of an input do not agree.
    #[error("[E326] input `{name}` has {found} elements, its shape {shape:?} needs another number")]
    InputSize {
        /// An input of the model.
        name: String,
        /// Shape that was given with the data.
        shape: Vec<usize>,
        /// Elements in the data.
        found: usize,
    },
    /// The run itself failed.
    #[error("[E327] onnx runtime failed to run the model: {reason}")]
    Run {
        /// What ONNX Runtime says, in its words.
        reason: String,
    },
    /// An output that the model does not have.
    #[error("[E328] model has no output `{name}`")]
    UnknownOutput {
        /// Name that was asked for; `#` and a number for a position, from 0.
        name: String,
    },
    /// An output of another type.
    #[error("[E329] output `{name}` is {found}, not {expected}")]
    OutputType {
        /// Output; empty where it was asked for by its position.
        name: String,
        /// Type that was asked for.
        expected: ElementType,
        /// Type that it has, as ONNX Runtime names it; or how many numbers where one was asked for.
        found: String,
    },
    /// An output that has no place in this program: a sequence, a map, or a tensor of a rare type.
    #[error(
        "[E449] output `{name}` is {found}, not a tensor of float32, float64, int32, int64, uint8 or bool"
    )]
    UnreadableOutput {
        /// Output of the model.
        name: String,
        /// Type that it has, as ONNX Runtime names it.
        found: String,
    },
    /// ONNX Runtime writes what it simplified to a file only, and there is no room for one.
    #[error("[E496] cannot write a temporary file in {}: {reason}", folder.display())]
    TemporaryFile {
        /// Where it was to be.
        folder: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A library that the device needs is there and cannot be loaded.
    #[error("[E493] cannot load {}: {reason}", path.display())]
    Preload {
        /// File of the library.
        path: PathBuf,
        /// What the loader of the system says.
        reason: String,
    },
    /// ONNX Runtime cannot compute on the device.
    #[error("[E494] cannot compute on {device}: {reason}")]
    Device {
        /// Device that was asked for.
        device: Device,
        /// What ONNX Runtime says, or what the test product came to.
        reason: String,
    },
    /// The device, the CPU among them, has no memory left for a model or a run, or the run may take no more
    /// of it.
    #[error(
        "[E498] {device} has no memory left{}: {reason}",
        wanted.map(|bytes| format!(" for another {bytes} bytes")).unwrap_or_default()
    )]
    DeviceMemory {
        /// Device that was to compute.
        device: Device,
        /// Bytes that were asked for, if ONNX Runtime says so.
        wanted: Option<u64>,
        /// What ONNX Runtime says, in its words.
        reason: String,
    },
    /// The pages of some memory cannot be locked for a GPU: inputs from there go a longer way.
    #[error("[E497] cannot lock {bytes} bytes for the GPU: {reason}")]
    PagesNotLocked {
        /// Bytes of the memory.
        bytes: usize,
        /// What CUDA says.
        reason: String,
    },
    /// ONNX Runtime would have run all of it on the CPU.
    #[error("[E495] no part of the model runs on {device}: {placement}")]
    Unplaced {
        /// Device that was asked for.
        device: Device,
        /// How many nodes run on which execution provider.
        placement: String,
    },
}

impl BackendError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "E320",
            Self::Load { .. } => "E321",
            Self::AlreadyLoaded { .. } => "E322",
            Self::Model(source) => source.code(),
            Self::Compile { .. } => "E323",
            Self::Hazard { .. } => "E251",
            Self::UnknownInput { .. } => "E324",
            Self::InputCount { .. } => "E325",
            Self::InputSize { .. } => "E326",
            Self::Run { .. } => "E327",
            Self::UnknownOutput { .. } => "E328",
            Self::OutputType { .. } => "E329",
            Self::UnreadableOutput { .. } => "E449",
            Self::TemporaryFile { .. } => "E496",
            Self::Preload { .. } => "E493",
            Self::Device { .. } => "E494",
            Self::Unplaced { .. } => "E495",
            Self::PagesNotLocked { .. } => "E497",
            Self::DeviceMemory { .. } => "E498",
        }
    }

    /// Whether another machine, or another device, may do what failed here.
    pub fn may_be_the_machine(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::Load { .. }
            | Self::TemporaryFile { .. }
            | Self::Device { .. }
            | Self::DeviceMemory { .. }
            | Self::Preload { .. }
            | Self::Unplaced { .. } => true,
            Self::Compile { reason } | Self::Run { reason } => is_of_the_machine(reason),
            _ => false,
        }
    }

    /// Whether it is how a device fails that may do nothing more for this process, see
    /// [`Runtime::device_loss`](crate::Runtime::device_loss).
    pub fn is_device_failure(&self) -> bool {
        match self {
            Self::Compile { reason } | Self::Run { reason } | Self::Device { reason, .. } => {
                is_device_failure(reason)
            }
            _ => false,
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Load { reason, .. } if reason.contains("failed to map segment") => Some(
                "the system loads no program from that file: the file system is mounted `noexec`, or this process may use too little memory \
                 (`ulimit -v`)",
            ),
            Self::NotFound { .. } | Self::Load { .. } => Some(
                "set ORT_DYLIB_PATH to libonnxruntime.so of ONNX Runtime 1.24 or newer; the Python package \
                 onnxruntime holds it as onnxruntime/capi/libonnxruntime.so.*",
            ),
            Self::AlreadyLoaded { .. } => Some("use one library for the whole process"),
            Self::Model(source) => return source.hint(),
            Self::Compile { reason } if lacks_a_kernel(reason) => Some(
                "for numbers of this type there is no such operator on this device; CPUs have few for bfloat16 and float16: export model.float()",
            ),
            Self::UnreadableOutput { .. } => {
                Some("cast the output inside the model, or export without it (skl2onnx: zipmap=False)")
            }
            Self::TemporaryFile { .. } => Some("make room there, or name another folder in TMPDIR"),
            Self::Preload { .. } => Some(
                "it may belong to another release or machine; install it again, or name the folder of a good one in \
                 LD_LIBRARY_PATH",
            ),
            Self::Device { .. } => Some(
                "`nvidia-smi` lists the GPUs, and the newest CUDA that the driver can run; CUDA counts them as it does with \
                 CUDA_DEVICE_ORDER=PCI_BUS_ID alone, and CUDA_VISIBLE_DEVICES hides some",
            ),
            Self::DeviceMemory { device: Device::Cpu, .. } => Some(
                "fewer workers on the machine leave each of them more memory, and a smaller batch needs less: `batch` of the job, \
                 `--max-batch` of this worker; a container's limit, or `ulimit -v`, may be below what the machine has",
            ),
            Self::DeviceMemory { .. } => Some(
                "a smaller batch needs less: `batch` of the job, `--max-batch` of this worker; so does `recompute = true`. Other \
                 workers and programs on this GPU have a share of it (`nvidia-smi`); if --gpu-memory bounds this worker, raise it",
            ),
            Self::Unplaced { .. } => {
                Some("compute with --device cpu, or export the model with other operators")
            }
            _ => None,
        };
        hint.map(str::to_owned)
    }
}

/// Whether ONNX Runtime, in its words, refuses a type of numbers and not the form of the model.
fn lacks_a_kernel(reason: &str) -> bool {
    ["Could not find an implementation", "tensor(bfloat16)"].iter().any(|words| reason.contains(words))
}

impl From<BackendError> for CompileError {
    fn from(error: BackendError) -> Self {
        Self { code: error.code(), text: error.to_string(), hint: error.hint() }
    }
}
