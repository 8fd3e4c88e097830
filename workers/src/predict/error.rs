//! Why nothing was predicted.

use syncline_runtime::BackendError;

use crate::{
    data::{DataError, FileError, FormatError, LabelSignature, SettingError, TableError},
    export::ExportError,
};

/// Why nothing was predicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The data cannot be read, is other data, or does not fit.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The label is not found in data that is to have one.
    #[error(transparent)]
    NoLabel(DataError),
    /// ONNX Runtime refused a graph, or failed to run it.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The weights cannot be read.
    #[error(transparent)]
    Weights(#[from] ExportError),
    /// Files that are no data of such a job.
    #[error("[E577] the job cannot read these files: {reason}")]
    OtherFiles {
        /// What it reads instead, in words.
        reason: String,
    },
    /// An output had a row for each sample of other batches.
    #[error("[E610] output `{output}` has no row for each sample of a batch of {samples}, and has of others")]
    NoRows {
        /// Name of the output.
        output: String,
        /// Samples of the batch.
        samples: usize,
    },
    /// The part that was asked about is empty.
    #[error("[E578] the data has no {samples} samples")]
    NoSamples {
        /// Name of the part.
        samples: &'static str,
    },
}

impl PredictError {
    /// Why data that was opened with this label is refused.
    pub(super) fn of_data(error: DataError, label: Option<&LabelSignature>) -> Self {
        let lacks_label = match &error {
            DataError::Format(FormatError::MissingTensor { name, .. }) => {
                label.is_some_and(|label| label.name == *name)
            }
            DataError::Setting(SettingError::LabelNames { .. }) => true,
            _ => false,
        };
        if lacks_label { Self::NoLabel(error) } else { Self::Data(error) }
    }

    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Data(error) | Self::NoLabel(error) => error.code(),
            Self::Backend(error) => error.code(),
            Self::Weights(error) => error.code(),
            Self::OtherFiles { .. } => "E577",
            Self::NoRows { .. } => "E610",
            Self::NoSamples { .. } => "E578",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Data(DataError::File(FileError::Io { .. })) => Some(
                "the files are read on this machine: name them with --data, or run the command where they are".to_owned(),
            ),
            Self::Data(DataError::Table(TableError::ColumnNames { .. })) => Some(
                "columns are found by their names, in any order: rename them, and leave out what the job's data has not; `--unlabeled` if the label is \
                 missing, `--by-place` to take them in the order of the job's data"
                    .to_owned(),
            ),
            Self::NoLabel(_) => Some(
                "`--unlabeled` if the file has no labels; else the label has the name there that it has in the job's data".to_owned(),
            ),
            Self::Data(error) => error.hint().or_else(|| Some("correct the file that the text names".to_owned())),
            Self::Backend(error) => error.hint(),
            Self::Weights(error) => error.hint(),
            Self::OtherFiles { .. } => {
                Some("name files of the form that the job was trained with (`syncline status JOB`, the line `data`)".to_owned())
            }
            Self::NoRows { .. } => Some(
                "the model drops the axis of the batch, as Squeeze without axes does of one sample: export it so that it keeps it, or choose a \
                 `--batch` that leaves no such rest"
                    .to_owned(),
            ),
            Self::NoSamples { .. } => Some("`--samples all` takes all of them, `--data FILE` those of another file".to_owned()),
        }
    }
}
