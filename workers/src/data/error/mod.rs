//! Why a data set was refused: one type for all of it, and one for each subject.

mod file;
mod fit;
mod format;
mod setting;
mod table;
mod value;

pub use file::FileError;
pub use fit::{FitError, Remedy};
pub use format::FormatError;
pub use setting::SettingError;
pub use table::TableError;
pub use value::ValueError;

/// Why data could not be read. Codes are stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// This machine cannot read the files.
    #[error(transparent)]
    File(#[from] FileError),
    /// The files are not what the source says.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A table cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A number cannot be trained on.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Samples or labels do not go with the model.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A setting makes no sense, or does not go with another.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A job that does not say what is in its files.
    #[error("[E616] the job has no digest of {files}")]
    NoDigest {
        /// All files of the data set, with commas between.
        files: String,
    },
    /// A row that does not exist.
    #[error("[E339] row {index} was asked for, the data set has {rows} rows")]
    NoSuchRow {
        /// Row that was asked for, from 0.
        index: u32,
        /// Rows of the data set, test samples included.
        rows: usize,
    },
}

impl DataError {
    /// The same of a table whose first column has no name.
    pub(super) fn with_unnamed_column(mut self) -> Self {
        if let Self::Fit(FitError::SampleShape { remedy: remedy @ Remedy::LabelColumns, .. }) = &mut self {
            *remedy = Remedy::IndexColumn;
        }
        self
    }

    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Format(error) => error.code(),
            Self::Table(error) => error.code(),
            Self::Value(error) => error.code(),
            Self::Fit(error) => error.code(),
            Self::Setting(error) => error.code(),
            Self::NoDigest { .. } => "E616",
            Self::NoSuchRow { .. } => "E339",
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::File(error) => Some(error.hint()),
            Self::Format(error) => error.hint(),
            Self::Table(error) => return Some(error.hint().into_owned()),
            Self::Value(error) => Some(error.hint()),
            Self::Fit(error) => Some(error.hint()),
            Self::Setting(error) => Some(error.hint()),
            Self::NoDigest { .. } => Some(
                "submit it with `syncline submit` or `Client::submit`, which look at the data: a worker reads no file that a job does not know",
            ),
            Self::NoSuchRow { .. } => None,
        };
        hint.map(str::to_owned)
    }

    /// Whether another machine may read the same data well: a file that is missing, or another one, on this
    /// machine.
    pub fn is_machine_specific(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Table(TableError::UnknownColumns { source, .. }) => source.is_machine_specific(),
            _ => false,
        }
    }
}
