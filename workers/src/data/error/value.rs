//! Numbers that cannot be trained on.

use std::path::PathBuf;

use super::super::csv;

/// Why a number is not one that the model or its loss can take. Rows and columns count as the message says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A number that is none, or too large for float32; rows and columns count from 1.
    #[error(
        "[E336] {} row {row}, column {column}{whose}: {} is not a finite number of float32{}",
        path.display(),
        shortest(*number),
        if *is_scaled { " after scaling" } else { "" }
    )]
    NotFinite {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// Number within the sample, in a CSV file its column; from 1.
        column: usize,
        /// What that is part of, in words: ` (`NAME`)`, the name of a column, or ` of `NAME``, an array; may be
        /// empty.
        whose: String,
        /// As the data has it.
        number: f64,
        /// Whether `scale`, `mean` or `std` apply to it.
        is_scaled: bool,
    },
    /// Something else than an integer where the model wants one; rows and columns count from 1.
    #[error("[E484] {} row {row}, column {column}{whose}: {number} is not an integer, or out of the range that the model's input takes", path.display())]
    NotInteger {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// Number within the sample, in a CSV file its column; from 1.
        column: usize,
        /// What that is part of, in words: ` (`NAME`)`, the name of a column, or ` of `NAME``, an array; may be
        /// empty.
        whose: String,
        /// What stands there: a fraction, or too large for int32 or for a float that is exact.
        number: String,
    },
    /// Something else than 0 or 1 where the model wants a truth value; rows and columns count from 1.
    #[error("[E484] {} row {row}, column {column}{whose}: {number} is neither 0 nor 1, which the model's bool input takes", path.display())]
    NotTruth {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// Number within the sample, in a CSV file its column; from 1.
        column: usize,
        /// What that is part of, in words: ` (`NAME`)`, the name of a column, or ` of `NAME``, an array; may be
        /// empty.
        whose: String,
        /// What stands there.
        number: String,
    },
    /// An id for which the model's table has no row; rows and columns count from 1.
    #[error("[E488] {} row {row}, column {column}: {found} is not in the table of the model's input {input}, whose rows are 0 to {}", path.display(), rows.saturating_sub(1))]
    IdOutOfRange {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// Number within the sample, in a CSV file its column; from 1.
        column: usize,
        /// The id; it may be negative.
        found: i64,
        /// Input of the model that takes it.
        input: String,
        /// Rows of the table, counted from 0.
        rows: usize,
    },
    /// More characters than the model has classes.
    #[error("[E483] {} has {found} different characters, the model tells {classes} apart", path.display())]
    VocabularyTooLarge {
        /// File as the job names it.
        path: PathBuf,
        /// Different characters in the text.
        found: usize,
        /// Rows of the model's embedding or its classes, whichever are fewer.
        classes: usize,
    },
    /// A label that is no class of the model; rows count from 1.
    #[error(
        "[E337] {} row {row}{}: label {found} is not one of the classes 0 to {}",
        path.display(),
        column.map(|column| format!(", column {column}")).unwrap_or_default(),
        classes.saturating_sub(1)
    )]
    LabelOutOfRange {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// Column of a table, from 1.
        column: Option<usize>,
        /// The label, which may be a fraction.
        found: String,
        /// Number of classes, counted from 0.
        classes: usize,
    },
    /// A label that the loss cannot take for a probability; rows count from 1.
    #[error("[E356] {} row {row}: label {value} is no probability from 0 to 1, which `bce-with-logits` takes", path.display())]
    NoProbability {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// The label.
        value: f32,
    },
    /// Nothing to learn, or to evaluate: the loss of every sample is zero.
    #[error(
        "[E489] all labels of the {part} data are {labels}: none counts, by `ignore_index` or a weight of 0 in `class_weights`"
    )]
    AllIgnored {
        /// `training`, `validation` or `test`.
        part: &'static str,
        /// The labels that are there.
        labels: String,
    },
}

impl ValueError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::NotFinite { .. } => "E336",
            Self::NotInteger { .. } | Self::NotTruth { .. } => "E484",
            Self::IdOutOfRange { .. } => "E488",
            Self::VocabularyTooLarge { .. } => "E483",
            Self::LabelOutOfRange { .. } => "E337",
            Self::NoProbability { .. } => "E356",
            Self::AllIgnored { .. } => "E489",
        }
    }

    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::NotFinite { number, .. } if number.is_nan() => csv::MISSING,
            Self::NotFinite { .. } => {
                "numbers of float32 lie between -3.4e38 and 3.4e38, after `scale`, `mean` and `std` as well: correct it, or write its column in \
                 another unit"
            }
            Self::NotInteger { .. } => {
                "round it, or export the model with a float input; integers are read from tables and other floats up to 16777215: larger ones come from \
                 arrays of integers, `npz` or `safetensors`"
            }
            Self::NotTruth { .. } => {
                "write 1 for true and 0 for false, or an array of bool: in numpy `array != 0`"
            }
            Self::IdOutOfRange { found: ..0, .. } => {
                "ids count from 0, and as in PyTorch's Embedding none counts from the end; pad with an id that has a row"
            }
            Self::IdOutOfRange { .. } => {
                "ids count from 0; give the model's table a row for each of them, or clip the ids inside the model"
            }
            Self::VocabularyTooLarge { .. } => {
                "export the model with a row of its embedding and an output for each character"
            }
            Self::LabelOutOfRange { found, .. } if found == "NaN" => csv::MISSING,
            Self::LabelOutOfRange { found, classes, .. } if *found == classes.to_string() => {
                "classes count from 0: where labels count from 1, subtract 1 from each; else the model needs an output for each class"
            }
            Self::LabelOutOfRange { column: Some(_), .. } => {
                "the label of a table is its last column, unless `label_names` or `label_columns` under `data` say otherwise; classes \
                 count from 0, and the loss option `ignore_index` names one label that counts nothing, such as -100"
            }
            Self::LabelOutOfRange { column: None, .. } => {
                "classes count from 0, and the model needs an output for each; the loss option `ignore_index` names one label \
                 that counts nothing, such as -100"
            }
            Self::NoProbability { .. } => {
                "write 0 and 1, or probabilities between; for labels of any size use `mse`, `l1` or `huber`"
            }
            Self::AllIgnored { .. } => {
                "correct the labels, `ignore_index` or `class_weights`; samples without labels belong into none of these sets"
            }
        }
    }
}

/// A number in as few digits as tell it from others of its type.
fn shortest(number: f64) -> String {
    let narrow = number as f32;
    if f64::from(narrow) == number { format!("{narrow:?}") } else { format!("{number:?}") }
}
