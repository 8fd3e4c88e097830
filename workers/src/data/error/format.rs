//! Files that are not of their format, or do not go together.

use std::path::PathBuf;

/// Why the files of a source cannot be read, wherever that is tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Not a file of this format.
    #[error("[E333] {} is not well formed: {reason}", path.display())]
    Malformed {
        /// File as the job names it.
        path: PathBuf,
        /// What about it is wrong, in words, with the place where there is one.
        reason: String,
    },
    /// A pattern of names that means no file.
    #[error("[E591] {pattern} means no file: {reason}")]
    NoFile {
        /// Path as the job has it, with its `*`.
        pattern: String,
        /// Why, in words.
        reason: String,
    },
    /// Files of one data set that do not hold the same.
    #[error("[E592] {} does not go on with {}: {what}", path.display(), first.display())]
    UnlikeFiles {
        /// File as the job names it.
        path: PathBuf,
        /// The first file, which says what all hold.
        first: PathBuf,
        /// What differs, in words.
        what: String,
    },
    /// An array of a type that is not read.
    #[error(
        "[E481] {}: array `{name}` holds {found}; read are bool, integers of 8 to 64 bits, float16, bfloat16 (in safetensors), float32 and \
         float64",
        path.display()
    )]
    UnsupportedElement {
        /// File as the job names it.
        path: PathBuf,
        /// Name of the array; that of the file, without its end, where it has none.
        name: String,
        /// Its type, as safetensors or numpy names it.
        found: String,
        /// How it becomes one that is read.
        remedy: &'static str,
    },
    /// An input that the file has nothing for.
    #[error("[E482] {} has no array `{name}`, it has {known}", path.display())]
    MissingTensor {
        /// File as the job names it.
        path: PathBuf,
        /// Input or label of the model.
        name: String,
        /// Arrays of the file in the order of the alphabet, with commas between.
        known: String,
    },
}

impl FormatError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "E333",
            Self::NoFile { .. } => "E591",
            Self::UnlikeFiles { .. } => "E592",
            Self::UnsupportedElement { .. } => "E481",
            Self::MissingTensor { .. } => "E482",
        }
    }

    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoFile { .. } => Some(
                "`*` in the name of a file stands for any characters; a path is relative to the job file, in a program to its current folder",
            ),
            Self::UnlikeFiles { .. } => Some(
                "arrays of all files of a source are of one type, and their samples of one shape: write them alike",
            ),
            Self::UnsupportedElement { remedy, .. } => Some(*remedy),
            Self::MissingTensor { .. } => Some(
                "arrays are called as the model's inputs, the label as `label`: numpy.savez(FILE, x=samples, label=labels)",
            ),
            Self::Malformed { .. } => None,
        }
    }
}
