//! Settings of the data that make no sense.

/// Why a setting of the data cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A setting of the data that makes no sense, or does not go with another.
    #[error("[E480] data: {what}")]
    Invalid {
        /// Which setting, and what it must be, in words.
        what: String,
    },
    /// A file in which the columns of the label are not found by their names.
    #[error("[E480] data: `label_names`: {what}")]
    LabelNames {
        /// File and name, and what the file has instead, in words.
        what: String,
    },
    /// Data that cannot be standardized.
    #[error("[E593] `standardize` cannot be done: {what}")]
    Standardize {
        /// What does not go with it, in words.
        what: String,
    },
    /// Floats that the model takes for ids, and a normalization would make others.
    #[error(
        "[E639] {by} would change ids: {column} of the model's input {input} is looked up in a table of {rows} rows"
    )]
    NormalizedIds {
        /// The settings, in words.
        by: &'static str,
        /// The first such column of a table, or number of a sample, in words.
        column: String,
        /// Input of the model that takes it.
        input: String,
        /// Rows of the table.
        rows: usize,
    },
    /// Samples that are no images, or too small for what is to be done to them.
    #[error("[E479] `augment` cannot be done: {what}")]
    Augment {
        /// What does not go with it, in words.
        what: String,
    },
}

impl SettingError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::LabelNames { .. } => "E480",
            Self::Standardize { .. } => "E593",
            Self::NormalizedIds { .. } => "E639",
            Self::Augment { .. } => "E479",
        }
    }

    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::LabelNames { .. } => {
                "correct the setting under `data`; docs/data.md shows the settings of each source"
            }
            Self::Standardize { .. } => {
                "leave `standardize` out, and write the numbers as the model is to get them, or give `mean` and `std`; of several inputs of floats each has its own \
                 normalization under `[data.normalize.NAME]`"
            }
            Self::NormalizedIds { .. } => {
                "export the model with an int64 input for ids beside the one for numbers, and name the columns of each under `[data.inputs]`: `standardize` leaves \
                 integers alone; or give `mean` and `std` instead, 0 and 1 for each column of ids, and no `scale`"
            }
            Self::Augment { .. } => {
                "leave `augment` out, or what does not fit; images come to the model as channels, height and width (`layout = \"nhwc\"` \
                 transposes files), docs/data.md"
            }
        }
    }
}
