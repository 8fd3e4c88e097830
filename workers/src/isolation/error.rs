//! Why a model from elsewhere is not used.

use syncline_autodiff::AutodiffError;
use syncline_onnx::OnnxError;
use syncline_runtime::BackendError;
use syncline_scheduler::fault_code::FaultCode;

use super::message::ChildError;
use crate::check::CheckError;

/// What is wrong with a model, or what became of the process that loaded it. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It cannot be trained, or its gradients are wrong.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The model ended the process that loaded it.
    #[error("[E254] {model} ended onnx runtime by {how} at the stage `{stage}`{node}{words}")]
    Crashed {
        /// What the model is called in front of people, such as its file.
        model: String,
        /// Signal or exit status, or an answer that cannot be read.
        how: String,
        /// What it was doing, as in `simplify the model`; `start` if it has not said anything.
        stage: String,
        /// Node at which it ends, `, at ` in front; empty if it was not found in time.
        node: String,
        /// Last line of its stderr, a colon in front; empty if there was none.
        words: String,
    },
    /// Somebody else, such as the kernel where memory runs out, ended the process that loaded the model.
    #[error("[E651] the process that loaded {model} was ended by {by} at the stage `{stage}`")]
    Ended {
        /// What the model is called in front of people, such as its file.
        model: String,
        /// The signal.
        by: String,
        /// What it was doing, as in `simplify the model`; `start` if it has not said anything.
        stage: String,
    },
    /// The process that loaded the model did not come to an end.
    #[error("[E255] {model} kept onnx runtime for {seconds} s at the stage `{stage}`")]
    Silent {
        /// What the model is called in front of people, such as its file.
        model: String,
        /// What it was doing, as in `simplify the model`; `start` if it has not said anything.
        stage: String,
        /// How long it said nothing before it was ended.
        seconds: u64,
    },
    /// No process could be had for the model.
    #[error("[E257] cannot load the model in a process of its own: {reason}")]
    Process {
        /// What the system says, or what was wrong with its answer.
        reason: String,
    },
    /// There is no ONNX Runtime to load it with.
    #[error(transparent)]
    Kit(#[from] syncline_kit::KitError),
    /// What another process met, in its words.
    #[error(transparent)]
    Child(ChildError),
}

/// What a child met that is the machine's: no memory (E498), no ONNX Runtime that can be loaded, as where its
/// package was just replaced (E320, E321), no room for a temporary file (E496).
#[cfg(feature = "worker")]
const OF_THE_MACHINE: [&str; 4] = ["E320", "E321", "E496", "E498"];

impl ModelError {
    /// Whether the machine may be at fault, and not the model: it has no memory left, for which the kernel
    /// ends the process or the child says so, no library, or no time, or it is being stopped.
    #[cfg(feature = "worker")]
    pub(crate) fn may_be_the_machine(&self) -> bool {
        match self {
            Self::Kit(_) | Self::Process { .. } | Self::Ended { .. } | Self::Silent { .. } => true,
            Self::Child(error) => OF_THE_MACHINE.iter().any(|code| error.code == *code),
            Self::Check(_) | Self::Crashed { .. } => false,
        }
    }

    /// The stable code, as in the message.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Check(source) => source.code(),
            Self::Crashed { .. } => "E254",
            Self::Ended { .. } => "E651",
            Self::Silent { .. } => "E255",
            Self::Process { .. } => "E257",
            Self::Kit(source) => source.code(),
            Self::Child(error) => return error.code,
        })
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Check(source) => return source.hint(),
            Self::Crashed { .. } => {
                "ONNX Runtime cannot load this model; write the part that is named with other operators and export it again, \
                 with PyTorch's other exporter perhaps"
            }
            Self::Ended { .. } => {
                "after SIGKILL see the kernel's log: where memory ran out, give the process more of it; otherwise do it again, nothing was \
                 found out about the model"
            }
            Self::Silent { .. } => {
                "export the model with fewer nodes, or without loops that run while it is loaded"
            }
            Self::Process { .. } => "the system refused another process; see its limits and free memory",
            Self::Kit(source) => return source.hint(),
            Self::Child(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}

impl From<AutodiffError> for ModelError {
    fn from(error: AutodiffError) -> Self {
        Self::Check(error.into())
    }
}

impl From<BackendError> for ModelError {
    fn from(error: BackendError) -> Self {
        Self::Check(error.into())
    }
}

impl From<OnnxError> for ModelError {
    fn from(error: OnnxError) -> Self {
        Self::Check(error.into())
    }
}
