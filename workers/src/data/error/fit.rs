//! Samples and labels that do not go with the model.

/// Why data do not go with the model: shapes, or how many inputs there are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
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
    /// Normalizations of inputs that the model does not have, or that take no floats.
    #[error("[E667] `normalize` does not go with the model: {what}")]
    UnfitNormalization {
        /// The input that is unknown, with those of the model, or what it takes.
        what: String,
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
    /// They are rows of a table of another length, and its first column has no name: it may only count the
    /// rows.
    IndexColumn,
    /// They are flat.
    SampleShape,
    /// They have the axes that the model wants, and other lengths.
    Length,
    /// No setting of the data does.
    None,
}

impl FitError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Shape { .. } => "E338",
            Self::SampleShape { .. } => "E362",
            Self::NumberForEachClass { .. } => "E624",
            Self::TooManyInputs { .. } => "E363",
            Self::UnfitInputs { .. } => "E637",
            Self::UnfitNormalization { .. } => "E667",
        }
    }

    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Shape { .. } => {
                "correct `sample_shape`, `label_columns` or `label_names` under `data`, or the model; for images whose channels \
                 come last set `layout = \"nhwc\"`; docs/data.md says what shape labels have"
            }
            Self::SampleShape { remedy: Remedy::Transpose, .. } => {
                "the channels come last: set `layout = \"nhwc\"` under `data`, which transposes every sample"
            }
            Self::SampleShape { remedy: Remedy::NoTranspose, .. } => {
                "that is how `layout = \"nhwc\"` reads the data; as they are, the samples fit: leave `layout` out"
            }
            Self::SampleShape { remedy: Remedy::LabelColumns, .. } => {
                "every column of a table is a number of the sample, but those of the label, which is the last one unless `label_names` \
                 or `label_columns` under `data` say otherwise (`label_columns = 0`: none); or export the model for this data"
            }
            Self::SampleShape { remedy: Remedy::InputColumns, .. } => {
                "`[data.inputs]` says which columns this input takes: name as many as it has numbers, or export the model for this data"
            }
            Self::SampleShape { remedy: Remedy::IndexColumn, .. } => {
                "the first column has no name: if it only counts the rows, as the index of pandas does, write the file without it, \
                 to_csv(FILE, index=False)"
            }
            Self::SampleShape { remedy: Remedy::SampleShape, .. } => {
                "set `sample_shape` under `data` to the shape of a sample, or export the model for this data"
            }
            Self::SampleShape { remedy: Remedy::Length, .. } => {
                "correct the data, or export the model for it; an axis that the model leaves open is in a job as long as in the data that \
                 the job trains on: for another length train a job with `weights`, or run what `syncline model export` writes, docs/models.md"
            }
            Self::SampleShape { remedy: Remedy::None, .. } => {
                "write the data in the order of the model's axes, or export the model for this data; numbers in another \
                 order would train into nonsense"
            }
            Self::NumberForEachClass { .. } => {
                "of one-hot labels write the number of the class, numpy.argmax(label, -1); soft labels, which are probabilities, go with a model that \
                 computes the loss itself and takes them as an input: `loss = \"output\"`, docs/models.md"
            }
            Self::TooManyInputs { .. } => {
                "for a table write under `[data.inputs]` which columns each input takes, INPUT = [\"COLUMN\", \"COLUMN\"]; else one array for each input \
                 and the label: numpy.savez(FILE, INPUT=a, OTHER=b, label=y)"
            }
            Self::UnfitInputs { .. } => {
                "under `[data.inputs]` each input of the model has a line with its name and its columns; `syncline model show FILE` lists the inputs"
            }
            Self::UnfitNormalization { .. } => {
                "a table `[data.normalize.NAME]` is for the input NAME of the model, which takes floats; `syncline model show FILE` lists the inputs"
            }
        }
    }
}
