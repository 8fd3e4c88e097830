//! What a check of gradients found wrong, or why none could be made.

use syncline_autodiff::AutodiffError;
use syncline_onnx::{CompileError, OnnxError};
use syncline_runtime::BackendError;

/// Why a training graph is not used. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// Random numbers cannot be drawn for an input.
    #[error("[E243] cannot check with random numbers for input `{name}`: {reason}")]
    CheckInput {
        /// Data input or label.
        name: String,
        /// Why not: an axis of unknown size, too many elements, or its type.
        reason: String,
    },
    /// Two runs on the same numbers would differ.
    #[error(
        "[E253] cannot check a graph with {op} (node `{node}`) inside a loop or branch: no two runs are the same"
    )]
    CheckRandom {
        /// Operator that draws.
        op: String,
        /// Name of the node, or of its first output if it has none.
        node: String,
    },
    /// The gradients are not those of the loss.
    #[error("[E256] gradients are not those of the loss, for {params}{cause}")]
    WrongGradients {
        /// All parameters that are concerned, with commas between.
        params: String,
        /// Where the fault lies, a semicolon in front; empty if nothing is known.
        cause: String,
        /// Whether the model has a scatter, in which an exporter may have lost a sum.
        scatters: bool,
    },
    /// The loss is a number, and gradients of it are not.
    #[error("[E263] the loss is a number, but the gradients of {params} are not{cause}")]
    NoGradients {
        /// Parameters that are concerned: six by name, and how many more.
        params: String,
        /// Node that reads zeros, a comma in front; empty if none was found.
        cause: String,
    },
    /// The loss can be computed, and its gradients cannot.
    #[error("[E265] the loss of the training graph can be computed, its gradients cannot: {reason}")]
    Unrunnable {
        /// What ONNX Runtime says, in its words.
        reason: String,
    },
    /// There is no training graph.
    #[error(transparent)]
    Autodiff(#[from] AutodiffError),
    /// ONNX Runtime did not accept the graph, or did not run it.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// What to do where a gradient is no number and the loss is one.
pub const NO_GRADIENTS: &str = "the square root, norm, power or logarithm of a zero has no finite derivative (the distance of \
                            a point from itself, a norm of zeros): add a small epsilon to it in the model, as in \
                            sqrt(x + 1e-12), and export it again; a first step of training would fail";

impl CheckError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::CheckInput { .. } => "E243",
            Self::CheckRandom { .. } => "E253",
            Self::WrongGradients { .. } => "E256",
            Self::NoGradients { .. } => "E263",
            Self::Unrunnable { .. } => "E265",
            Self::Autodiff(source) => source.code(),
            Self::Backend(source) => source.code(),
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::WrongGradients { scatters: false, .. } => Some(
                "`syncline model check` shows how far each gradient is off, and --no-check uses the graph as it is; report it \
                 with the model",
            ),
            Self::WrongGradients { .. } => Some(
                "export the model with PyTorch's other exporter (dynamo=True); `syncline model check` shows how far each \
                 gradient is off, and --no-check uses the graph as it is",
            ),
            Self::NoGradients { .. } => Some(NO_GRADIENTS),
            Self::Unrunnable { .. } => Some(
                "no step of training would run: this is a fault of the gradient rules, report it with the model; --no-check uses \
                 the graph as it is",
            ),
            Self::CheckInput { .. } => Some("give the model's inputs fixed sizes, or name them with --dim"),
            Self::CheckRandom { .. } => None,
            Self::Autodiff(source) => return source.hint(),
            Self::Backend(source) => return source.hint(),
        };
        hint.map(str::to_owned)
    }
}

impl From<OnnxError> for CheckError {
    fn from(error: OnnxError) -> Self {
        Self::Autodiff(error.into())
    }
}

impl From<CompileError> for CheckError {
    fn from(error: CompileError) -> Self {
        Self::Autodiff(error.into())
    }
}
