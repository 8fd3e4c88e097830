//! Tables with lines, fields or columns that cannot be read.

use std::borrow::Cow;
use std::path::PathBuf;

use syncline_scheduler::spec::Separator;

use super::super::csv;
use super::DataError;

/// Why a table cannot be read. Lines and columns count as the message says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A line with another number of columns.
    #[error("[E334] {} line {line}: {found} columns, expected {expected}", path.display())]
    ColumnCount {
        /// File as the job names it.
        path: PathBuf,
        /// Line on which the record begins, from 1.
        line: u64,
        /// Columns of the record; 0 for an empty line.
        found: usize,
        /// Columns of the first record, or of the header.
        expected: usize,
    },
    /// A test or validation file whose header is not that of the training file.
    #[error("[E477] the columns of {} are not those of {}: {what}", path.display(), training.display())]
    ColumnNames {
        /// File as the job names it.
        path: PathBuf,
        /// Training file as the job names it.
        training: PathBuf,
        /// Names that are missing, that are too many, or that stand twice, in words.
        what: String,
    },
    /// A file with names of columns or classes, and those of the job that cannot be known.
    #[error(
        "[E581] {} names its columns or classes, and what those of the job's data are called is not known",
        path.display()
    )]
    UnknownColumns {
        /// The file with the names.
        path: PathBuf,
        /// Why the data of the job cannot be read, or that it is other data now.
        source: Box<DataError>,
    },
    /// A field that is no number.
    #[error(
        "[E335] {} line {line}, column {column}{}: `{text}` is not a number",
        path.display(),
        name.as_ref().map(|name| format!(" (`{name}`)")).unwrap_or_default()
    )]
    NotANumber {
        /// File as the job names it.
        path: PathBuf,
        /// Line on which the field begins, from 1.
        line: u64,
        /// Column of the field, from 1.
        column: usize,
        /// Its name, where the file has a header; cut off after 40 characters.
        name: Option<String>,
        /// What stands there, cut off after 40 characters.
        text: String,
    },
    /// A field that is a number but for its commas.
    #[error(
        "[E589] {} line {line}, column {column}{}: `{text}` is written with a comma, and numbers have a decimal point and no commas",
        path.display(),
        name.as_ref().map(|name| format!(" (`{name}`)")).unwrap_or_default()
    )]
    Comma {
        /// File as the job names it.
        path: PathBuf,
        /// Line on which the field begins, from 1.
        line: u64,
        /// Column of the field, from 1.
        column: usize,
        /// Its name, where the file has a header; cut off after 40 characters.
        name: Option<String>,
        /// What stands there, cut off after 40 characters.
        text: String,
        /// What separates the columns of the file.
        separator: Separator,
    },
    /// A field with a number of which float64 makes an infinite one.
    #[error(
        "[E631] {} line {line}, column {column}{}: `{text}` is beyond the numbers of float64",
        path.display(),
        name.as_ref().map(|name| format!(" (`{name}`)")).unwrap_or_default()
    )]
    BeyondFloat64 {
        /// File as the job names it.
        path: PathBuf,
        /// Line on which the field begins, from 1.
        line: u64,
        /// Column of the field, from 1.
        column: usize,
        /// Its name, where the file has a header; cut off after 40 characters.
        name: Option<String>,
        /// What stands there, cut off after 40 characters.
        text: String,
    },
    /// A table that two separators cut equally well.
    #[error("[E590] the columns of {} may be separated by {} or by {}", path.display(), separators[0], separators[1])]
    UnclearSeparator {
        /// File as the job names it.
        path: PathBuf,
        /// Both, as a sentence has them.
        separators: [&'static str; 2],
    },
    /// A label of a table whose labels are texts that is none of them.
    #[error("[E582] {} line {line}, column {column}: label `{text}` {what}", path.display())]
    UnfitLabel {
        /// File as the job names it.
        path: PathBuf,
        /// Line on which the field begins, from 1.
        line: u64,
        /// Column of the field, from 1.
        column: usize,
        /// What stands there, cut off after 40 characters.
        text: String,
        /// What is wrong with it, in words.
        what: String,
    },
    /// More texts as labels than the model has classes.
    #[error("[E583] {} has {found} different labels ({names}), the model tells {classes} classes apart", path.display())]
    TooManyTexts {
        /// File as the job names it.
        path: PathBuf,
        /// Different texts in the column of the label.
        found: usize,
        /// The first of them in ascending order, with commas between.
        names: String,
        /// Classes of the model.
        classes: usize,
    },
    /// A table without a column that an input takes.
    #[error("[E636] the inputs do not find their columns in {}: {what}", path.display())]
    InputColumns {
        /// File as the job names it.
        path: PathBuf,
        /// Input and column, and what the file has instead, in words.
        what: String,
    },
}

impl TableError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::ColumnCount { .. } => "E334",
            Self::ColumnNames { .. } => "E477",
            Self::UnknownColumns { .. } => "E581",
            Self::NotANumber { .. } => "E335",
            Self::Comma { .. } => "E589",
            Self::BeyondFloat64 { .. } => "E631",
            Self::UnclearSeparator { .. } => "E590",
            Self::UnfitLabel { .. } => "E582",
            Self::TooManyTexts { .. } => "E583",
            Self::InputColumns { .. } => "E636",
        }
    }

    pub(super) fn hint(&self) -> Cow<'static, str> {
        let hint = match self {
            Self::ColumnCount { .. } => {
                "every line has as many columns as the first one: look there for a separator or a quote that is missing or too many; a text with \
                 a separator in it stands in double quotes"
            }
            Self::ColumnNames { .. } => {
                "where both files have a header, columns are found by their names, in any order: rename them; or leave out the header of this file \
                 with `skip_lines`, and its columns are taken in their order"
            }
            Self::UnknownColumns { .. } => {
                "run the command where the job's data is, as it was at submission; or `--by-place`, if the columns stand in the order of the job's data"
            }
            Self::NotANumber { line, text, .. } => csv::hint(*line, text),
            Self::Comma { text, separator, .. } => return csv::comma_hint(text, *separator).into(),
            Self::BeyondFloat64 { .. } => {
                "numbers lie between -1.8e308 and 1.8e308: correct it, or write its column in another unit"
            }
            Self::UnclearSeparator { .. } => "say it under the source: `separator` is `,`, `;` or `tab`",
            Self::UnfitLabel { .. } => {
                "labels are numbers in every line, or strings in every line; those of test, validation and other files are among those of the \
                 training file"
            }
            Self::TooManyTexts { .. } => {
                "export the model with an output for each label, for `softmax-cross-entropy`, or correct those that are misspelt; `label_names` under `data` says which column \
                 is the label, if it is another one, and `skip_lines = 1` leaves out a header of numbers"
            }
            Self::InputColumns { .. } => {
                "columns have the names of the header, which has to be the first line behind `skip_lines`, and each is of one input or of the label: \
                 correct `[data.inputs]`, `label_names`, or the header"
            }
        };
        hint.into()
    }
}
