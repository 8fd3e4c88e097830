//! Why a data set was refused.

use std::path::PathBuf;

/// Why data could not be read. Codes are stable; lines, rows and columns count as the message says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read.
    #[error("[E330] cannot read {}: {source}", path.display())]
    Io {
        /// File as the job names it.
        path: PathBuf,
        /// What the system says, or what unpacking met.
        source: std::io::Error,
    },
    /// A file that stays on the disk, and was written into.
    #[error("[E619] {} is not as it was when this process looked through it", path.display())]
    Changed {
        /// File as the job names it.
        path: PathBuf,
    },
    /// Numbers of a table that do not fit on the disk.
    #[error(
        "[E611] {} as numbers takes about {} MB in {}, and its disk has no room for them",
        path.display(),
        needed_bytes.div_ceil(1_000_000),
        folder.display()
    )]
    NoRoom {
        /// The first file of the table, as the job names it.
        path: PathBuf,
        /// Where they were to be kept.
        folder: PathBuf,
        /// Of all of them, as far as could be told.
        needed_bytes: u64,
    },
    /// A file or folder in which the numbers of a table are kept, and that fails.
    #[error("[E630] cannot keep {} as numbers in {}: {source}", path.display(), place.display())]
    TableCache {
        /// The first file of the table, as the job names it.
        path: PathBuf,
        /// What fails, in the user's cache.
        place: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A table that does not fit in memory, and no place for its numbers.
    #[error(
        "[E612] {} as numbers is kept on the disk, and none of SYNCLINE_CACHE, XDG_CACHE_HOME and HOME says where",
        path.display()
    )]
    NoCache {
        /// The first file of the table, as the job names it.
        path: PathBuf,
    },
    /// The address of something that lies elsewhere.
    #[error("[E487] {url} is an address, and data is read from files")]
    Remote {
        /// Address with its scheme, such as `s3://bucket/key`.
        url: String,
    },
    /// Other bytes than the job was submitted with.
    #[error(
        "[E331] {files} holds other data than the job was submitted with: its digest begins with {}, not {}",
        start(found),
        start(expected)
    )]
    Digest {
        /// All files of the data set, with commas between.
        files: String,
        /// BLAKE3 of the files at submission, in hexadecimal.
        expected: String,
        /// BLAKE3 of the files on this machine.
        found: String,
    },
    /// A job that does not say what is in its files.
    #[error("[E616] the job has no digest of {files}")]
    NoDigest {
        /// All files of the data set, with commas between.
        files: String,
    },
    /// More than the reader accepts.
    #[error("[E332] {} holds more than {limit} {unit}", path.display())]
    TooLarge {
        /// File as the job names it.
        path: PathBuf,
        /// Most that is read.
        limit: u64,
        /// What `limit` counts, such as `bytes`.
        unit: &'static str,
    },
    /// Not a file of this format.
    #[error("[E333] {} is not well formed: {reason}", path.display())]
    Format {
        /// File as the job names it.
        path: PathBuf,
        /// What about it is wrong, in words, with the place where there is one.
        reason: String,
    },
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
    /// Data that cannot be standardized.
    #[error("[E593] `standardize` cannot be done: {what}")]
    Standardize {
        /// What does not go with it, in words.
        what: String,
    },
    /// Floats that the model takes for ids, and `standardize` would make others.
    #[error(
        "[E639] `standardize` would change ids: {column} of the model's input {input} is looked up in a table of {rows} rows"
    )]
    StandardizedIds {
        /// The first such column of a table, or number of a sample, in words.
        column: String,
        /// Input of the model that takes it.
        input: String,
        /// Rows of the table.
        rows: usize,
    },
    /// A number that is none, or too large for float32; rows and columns count from 1.
    #[error(
        "[E336] {} row {row}, column {column}: {} is not a finite number of float32{}",
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
        /// As the data has it.
        number: f64,
        /// Whether `scale`, `mean` or `std` apply to it.
        is_scaled: bool,
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
    /// One-hot or soft labels where classes are wanted.
    #[error(
        "[E624] labels of shape {shape:?} are {classes} numbers, one for each class, and `{label}` takes the number of a class"
    )]
    NumberForEachClass {
        /// Input of the graph.
        label: String,
        /// Of the labels of a sample.
        shape: Vec<usize>,
        /// Classes of the model.
        classes: usize,
    },
    /// Shapes that do not fit together.
    #[error("[E338] {reason}")]
    Shape {
        /// The shapes, and what does not fit, in words.
        reason: String,
    },
    /// A sample that is not what an input takes.
    #[error("[E362] the model's input {input} takes samples of shape {model}, the data has {data:?}")]
    SampleShape {
        /// Input of the model.
        input: String,
        /// Shape that it takes, `?` for an axis of any length.
        model: String,
        /// Shape of a sample, with `sample_shape` and `layout` applied.
        data: Vec<usize>,
        /// What makes it fit: the hint says it.
        remedy: Remedy,
    },
    /// Several inputs, and a source that gives one.
    #[error(
        "[E363] the model has {count} data inputs ({names}), and the data gives one: `inputs` names the columns of each in a table, other data are \
         named arrays, `npz` or `safetensors`"
    )]
    TooManyInputs {
        /// Data inputs of the model, 2 and more.
        count: usize,
        /// Their names, with commas between.
        names: String,
    },
    /// Inputs that are given columns of a table, and are not those of the model.
    #[error("[E637] `inputs` does not go with the model: {what}")]
    UnfitInputs {
        /// The input that is unknown, or has no column, and those of the model.
        what: String,
    },
    /// A table without a column that an input takes.
    #[error("[E636] the inputs do not find their columns in {}: {what}", path.display())]
    InputColumns {
        /// File as the job names it.
        path: PathBuf,
        /// Input and column, and what the file has instead, in words.
        what: String,
    },
    /// A setting of the data that makes no sense, or does not go with another.
    #[error("[E480] data: {what}")]
    InvalidSetting {
        /// Which setting, and what it must be, in words.
        what: String,
    },
    /// Samples that are no images, or too small for what is to be done to them.
    #[error("[E479] `augment` cannot be done: {what}")]
    Augment {
        /// What does not go with it, in words.
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
    /// Something else than an integer where the model wants one; rows and columns count from 1.
    #[error("[E484] {} row {row}, column {column}: {number} is not an integer, or out of the range that the model's input takes", path.display())]
    NotInteger {
        /// File as the job names it.
        path: PathBuf,
        /// Sample in the file, from 1.
        row: usize,
        /// Number within the sample, in a CSV file its column; from 1.
        column: usize,
        /// What stands there: a fraction, or too large for int32 or for a float that is exact.
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
    /// Nothing to learn: the loss of every sample is zero.
    #[error("[E489] all labels of the training data are {ignored}, which `ignore_index` says counts nothing")]
    AllIgnored {
        /// The label that `ignore_index` names.
        ignored: i64,
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

/// What makes samples fit a model's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Their channels come last.
    Transpose,
    /// Their channels come first, and `layout = "nhwc"` says otherwise.
    NoTranspose,
    /// They are rows of a table, as the model wants them, but of another length.
    LabelColumns,
    /// They are the columns of a table that the data names for this input, and it takes others.
    InputColumns,
    /// They are rows of a table of another length, and its first column has no name: it may only count the rows.
    IndexColumn,
    /// They are flat.
    SampleShape,
    /// No setting of the data does.
    None,
}

/// As much of a digest as tells two apart.
fn start(digest: &str) -> &str {
    digest.get(..8).unwrap_or(digest)
}

/// A number in as few digits as tell it from others of its type.
fn shortest(number: f64) -> String {
    let narrow = number as f32;
    if f64::from(narrow) == number { format!("{narrow:?}") } else { format!("{number:?}") }
}

impl DataError {
    /// The same of a table whose first column has no name.
    pub(super) fn with_unnamed_column(mut self) -> Self {
        if let Self::SampleShape { remedy: remedy @ Remedy::LabelColumns, .. } = &mut self {
            *remedy = Remedy::IndexColumn;
        }
        self
    }

    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "E330",
            Self::Changed { .. } => "E619",
            Self::NoRoom { .. } => "E611",
            Self::NoCache { .. } => "E612",
            Self::TableCache { .. } => "E630",
            Self::Remote { .. } => "E487",
            Self::Digest { .. } => "E331",
            Self::TooLarge { .. } => "E332",
            Self::Format { .. } => "E333",
            Self::NoDigest { .. } => "E616",
            Self::ColumnCount { .. } => "E334",
            Self::ColumnNames { .. } => "E477",
            Self::UnknownColumns { .. } => "E581",
            Self::NotANumber { .. } => "E335",
            Self::Comma { .. } => "E589",
            Self::BeyondFloat64 { .. } => "E631",
            Self::UnclearSeparator { .. } => "E590",
            Self::NoFile { .. } => "E591",
            Self::UnlikeFiles { .. } => "E592",
            Self::Standardize { .. } => "E593",
            Self::StandardizedIds { .. } => "E639",
            Self::NotFinite { .. } => "E336",
            Self::LabelOutOfRange { .. } => "E337",
            Self::NoProbability { .. } => "E356",
            Self::UnfitLabel { .. } => "E582",
            Self::TooManyTexts { .. } => "E583",
            Self::Shape { .. } => "E338",
            Self::NumberForEachClass { .. } => "E624",
            Self::NoSuchRow { .. } => "E339",
            Self::SampleShape { .. } => "E362",
            Self::TooManyInputs { .. } => "E363",
            Self::UnfitInputs { .. } => "E637",
            Self::InputColumns { .. } => "E636",
            Self::InvalidSetting { .. } => "E480",
            Self::Augment { .. } => "E479",
            Self::UnsupportedElement { .. } => "E481",
            Self::MissingTensor { .. } => "E482",
            Self::VocabularyTooLarge { .. } => "E483",
            Self::NotInteger { .. } => "E484",
            Self::IdOutOfRange { .. } => "E488",
            Self::AllIgnored { .. } => "E489",
        }
    }

    /// Whether another machine may read the same data well: a file that is missing, or another one, on this machine.
    pub fn is_machine_specific(&self) -> bool {
        matches!(
            self,
            Self::Io { .. }
                | Self::Changed { .. }
                | Self::NoRoom { .. }
                | Self::NoCache { .. }
                | Self::TableCache { .. }
                | Self::Remote { .. }
                | Self::Digest { .. }
                | Self::TooLarge { .. }
        )
    }
}
