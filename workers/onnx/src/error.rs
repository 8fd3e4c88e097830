//! Why a model was refused.

/// Why bytes are not an ONNX model that Syncline accepts. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The file is larger than the reader accepts.
    #[error("[E301] model has {bytes} bytes, at most {limit} are accepted")]
    TooLarge {
        /// Size of the file.
        bytes: usize,
        /// Most that is read, [`MAX_MODEL_BYTES`](crate::MAX_MODEL_BYTES).
        limit: usize,
    },
    /// Not protobuf, or not the protobuf of a model.
    #[error("[E302] bytes are not an ONNX model: {reason}")]
    Malformed {
        /// What the decoder found wrong, in words.
        reason: String,
    },
    /// Protobuf, but without a graph.
    #[error("[E303] model holds no graph")]
    NoGraph,
    /// Two producers of one value.
    #[error("[E304] value `{value}` is defined more than once, again by {by}")]
    DuplicateValue {
        /// Name of the value; empty if an input or initializer has no name.
        value: String,
        /// What defines it again: an input, an initializer, or a node with its operator.
        by: String,
    },
    /// A value that nobody produces.
    #[error("[E305] {user} reads `{value}`, which nothing in the model produces")]
    UndefinedValue {
        /// Name that is read.
        value: String,
        /// Node with its operator, or the list of outputs.
        user: String,
    },
    /// A value that depends on itself.
    #[error("[E306] node `{node}` ({op}) is part of a cycle")]
    Cycle {
        /// First node of the file that a cycle keeps from running, by its name or its first output.
        node: String,
        /// Its operator.
        op: String,
    },
    /// The numbers are in another file.
    #[error("[E307] tensor `{tensor}` keeps its data in another file, {reason}")]
    ExternalData {
        /// Name of the tensor; often empty for one in an attribute.
        tensor: String,
        /// Which file that is, and why its data is not read, as the end of a sentence.
        reason: String,
    },
    /// Shape and data of a tensor do not agree.
    #[error("[E308] tensor `{tensor}` is not well formed: {reason}")]
    BadTensor {
        /// Name of the tensor; often empty for one in an attribute.
        tensor: String,
        /// What shape, type and data say against each other.
        reason: String,
    },
    /// A tensor that lists where it is not zero.
    #[error("[E615] the model holds a sparse tensor as {place}")]
    SparseTensor {
        /// Which part of the file holds it.
        place: &'static str,
    },
}

impl OnnxError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "E301",
            Self::Malformed { .. } => "E302",
            Self::NoGraph => "E303",
            Self::DuplicateValue { .. } => "E304",
            Self::UndefinedValue { .. } => "E305",
            Self::Cycle { .. } => "E306",
            Self::ExternalData { .. } => "E307",
            Self::BadTensor { .. } => "E308",
            Self::SparseTensor { .. } => "E615",
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::ExternalData { .. } => Some(
                "read are weights in a file of the folder in which the model lies, as exporters write them: copy both; or write the model as one file, \
                 torch.onnx.export(..., external_data=False), or onnx.save without save_as_external_data",
            ),
            Self::Malformed { .. } | Self::NoGraph => {
                Some("is this an .onnx file? a checkpoint of a framework has to be exported first")
            }
            Self::TooLarge { .. } => Some(
                "models of more than 1 GiB, about 268 million float32 parameters, are not supported; external data counts",
            ),
            Self::SparseTensor { .. } => Some("export it with that tensor dense, in PyTorch by `to_dense()`"),
            _ => None,
        };
        hint.map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::OnnxError;
    use crate::MAX_MODEL_BYTES;

    #[test]
    fn the_hint_at_a_model_that_is_too_large_says_the_limit_in_parameters() {
        let million_parameters = MAX_MODEL_BYTES / size_of::<f32>() / 1_000_000;
        let error = OnnxError::TooLarge { bytes: MAX_MODEL_BYTES + 1, limit: MAX_MODEL_BYTES };
        let hint = error.hint().unwrap();
        assert!(hint.contains(&format!("about {million_parameters} million float32 parameters")), "{hint}");
        assert!(hint.contains(&format!("{} GiB", MAX_MODEL_BYTES >> 30)), "{hint}");
    }
}
