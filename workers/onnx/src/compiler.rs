//! What this crate asks of an ONNX implementation.

use std::collections::HashMap;

use crate::{OnnxError, TensorType};

/// Type of each value, by name. Values that are no tensors, or whose number of axes only the run knows, are
/// left out.
pub type Types = HashMap<String, TensorType>;

/// An ONNX implementation as a compiler: it loads models, infers shapes and folds constants, and runs
/// nothing.
///
/// Models are serialized protobuf. A load costs milliseconds to seconds.
pub trait Compiler {
    /// Loads a model as it is written. The types of its inputs and outputs, symbolic sizes included.
    fn interface_types(&self, model: &[u8]) -> Result<Types, CompileError>;

    /// The same after constants have been folded: shapes that are computed are known then.
    fn folded_interface_types(&self, model: &[u8]) -> Result<Types, CompileError>;

    /// The same model with constants folded and functions inlined, made of standard operators only.
    fn simplify(&self, model: &[u8]) -> Result<Vec<u8>, CompileError>;

    /// Hears what is done next, as in "infer the types of the model", before each step that may take long.
    fn enter(&self, _stage: &str) {}
}

/// Why a model was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CompileError {
    /// Stable, the same as in `text`.
    pub code: &'static str,
    /// The whole message, with the code in brackets.
    pub text: String,
    /// What the user can do about it, if there is something.
    pub hint: Option<String>,
}

impl CompileError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl From<OnnxError> for CompileError {
    fn from(error: OnnxError) -> Self {
        Self { code: error.code(), text: format!("model refused: {error}"), hint: error.hint() }
    }
}
