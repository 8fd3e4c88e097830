//! What to do about data that was refused.

use super::error::{DataError, Remedy};
use super::{csv, remote::how_to_fetch};

impl DataError {
    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { .. } => Some("every worker reads the data itself: the path must exist on its machine"),
            Self::Changed { .. } => Some(
                "large files are read while the job runs: put back what was there, or submit the job again; write new data to another file",
            ),
            Self::NoRoom { .. } => {
                Some("make room there, or name a folder on a larger disk by SYNCLINE_CACHE")
            }
            Self::NoCache { .. } => Some("set one of the three, SYNCLINE_CACHE to a folder on a large disk"),
            Self::TableCache { .. } => Some(
                "name another folder by SYNCLINE_CACHE, which this user may write to and whose disk has locks and room: 2 bytes for each number of the \
                 table, or 8 where not all of its samples are integers of 16 bits",
            ),
            Self::Remote { url } => Some(how_to_fetch(url)),
            Self::TooLarge { .. } => Some(
                "arrays in .npy, .npz (not compressed), safetensors and IDX files, in C order, and tables may be larger: they stay on the disk; else leave out what \
                 need not be there, or keep its numbers in fewer bytes, as uint8",
            ),
            Self::Digest { .. } => Some(
                "copy the same file to every machine, or submit the job again, which looks at the data anew",
            ),
            Self::NoDigest { .. } => Some(
                "submit it with `syncline submit` or `Client::submit`, which look at the data: a worker reads no file that a job does not know",
            ),
            Self::ColumnNames { .. } => Some(
                "where both files have a header, columns are found by their names, in any order: rename them; or leave out the header of this file \
                 with `skip_lines`, and its columns are taken in their order",
            ),
            Self::UnknownColumns { .. } => Some(
                "run the command where the job's data is, as it was at submission; or `--by-place`, if the columns stand in the order of the job's data",
            ),
            Self::NotANumber { line, text, .. } => Some(csv::hint(*line, text)),
            Self::Comma { .. } => Some(
                "write the file again with decimal points and without commas between thousands: in pandas read_csv(FILE, sep=\";\", \
                 decimal=\",\").to_csv(NEW, index=False)",
            ),
            Self::BeyondFloat64 { .. } => Some(
                "numbers lie between -1.8e308 and 1.8e308: correct it, or write its column in another unit",
            ),
            Self::UnclearSeparator { .. } => {
                Some("say it under the source: `separator` is `,`, `;` or `tab`")
            }
            Self::NoFile { .. } => Some(
                "`*` in the name of a file stands for any characters; a path is relative to the job file, in a program to its current folder",
            ),
            Self::UnlikeFiles { .. } => Some(
                "arrays of all files of a source are of one type, and their samples of one shape: write them alike",
            ),
            Self::Standardize { .. } => Some(
                "leave `standardize` out, and write the numbers as the model is to get them, or give `mean` and `std` where one list of each is enough",
            ),
            Self::StandardizedIds { .. } => Some(
                "export the model with an int64 input for ids beside the one for numbers, and name the columns of each under `[data.inputs]`: `standardize` leaves \
                 integers alone; or give `mean` and `std` instead, 0 and 1 for each column of ids",
            ),
            Self::ColumnCount { .. } => Some(
                "every line has as many columns as the first one: look there for a separator or a quote that is missing or too many; a text with \
                 a separator in it stands in double quotes",
            ),
            Self::NotFinite { number, .. } if number.is_nan() => Some(csv::MISSING),
            Self::NotFinite { .. } => Some(
                "numbers of float32 lie between -3.4e38 and 3.4e38, after `scale`, `mean` and `std` as well: correct it, or write its column in \
                 another unit",
            ),
            Self::LabelOutOfRange { found, .. } if found == "NaN" => Some(csv::MISSING),
            Self::NotInteger { .. } => Some(
                "round it, or export the model with a float input; integers are read from tables and other floats up to 16777215: larger ones come from \
                 arrays of integers, `npz` or `safetensors`",
            ),
            Self::LabelOutOfRange { found, classes, .. } if *found == classes.to_string() => Some(
                "classes count from 0: where labels count from 1, subtract 1 from each; else the model needs an output for each class",
            ),
            Self::LabelOutOfRange { column: Some(_), .. } => Some(
                "the label of a table is its last column, unless `label_names` or `label_columns` under `data` say otherwise; classes \
                 count from 0, and the loss option `ignore_index` names one label that counts nothing, such as -100",
            ),
            Self::LabelOutOfRange { column: None, .. } => Some(
                "classes count from 0, and the model needs an output for each; the loss option `ignore_index` names one label \
                 that counts nothing, such as -100",
            ),
            Self::UnfitLabel { .. } => Some(
                "labels are numbers in every line, or strings in every line; those of test, validation and other files are among those of the \
                 training file",
            ),
            Self::TooManyTexts { .. } => Some(
                "export the model with an output for each label, for `softmax-cross-entropy`, or correct those that are misspelt; `label_names` under `data` says which column \
                 is the label, if it is another one, and `skip_lines = 1` leaves out a header of numbers",
            ),
            Self::NoProbability { .. } => Some(
                "write 0 and 1, or probabilities between; for labels of any size use `mse`, `l1` or `huber`",
            ),
            Self::NumberForEachClass { .. } => Some(
                "of one-hot labels write the number of the class, numpy.argmax(label, -1); soft labels, which are probabilities, go with a model that \
                 computes the loss itself and takes them as an input: `loss = \"output\"`, docs/models.md",
            ),
            Self::Shape { .. } => Some(
                "correct `sample_shape`, `label_columns` or `label_names` under `data`, or the model; for images whose channels \
                 come last set `layout = \"nhwc\"`; docs/data.md says what shape labels have",
            ),
            Self::InvalidSetting { .. } => {
                Some("correct the setting under `data`; docs/data.md shows the settings of each source")
            }
            Self::Augment { .. } => Some(
                "leave `augment` out, or what does not fit; images come to the model as channels, height and width (`layout = \"nhwc\"` \
                 transposes files), docs/data.md",
            ),
            Self::IdOutOfRange { found: ..0, .. } => Some(
                "ids count from 0, and as in PyTorch's Embedding none counts from the end; pad with an id that has a row",
            ),
            Self::IdOutOfRange { .. } => Some(
                "ids count from 0; give the model's table a row for each of them, or clip the ids inside the model",
            ),
            Self::SampleShape { remedy: Remedy::Transpose, .. } => Some(
                "the channels come last: set `layout = \"nhwc\"` under `data`, which transposes every sample",
            ),
            Self::SampleShape { remedy: Remedy::NoTranspose, .. } => Some(
                "that is how `layout = \"nhwc\"` reads the data; as they are, the samples fit: leave `layout` out",
            ),
            Self::SampleShape { remedy: Remedy::LabelColumns, .. } => Some(
                "every column of a table is a number of the sample, but those of the label, which is the last one unless `label_names` \
                 or `label_columns` under `data` say otherwise (`label_columns = 0`: none); or export the model for this data",
            ),
            Self::SampleShape { remedy: Remedy::InputColumns, .. } => Some(
                "`[data.inputs]` says which columns this input takes: name as many as it has numbers, or export the model for this data",
            ),
            Self::SampleShape { remedy: Remedy::IndexColumn, .. } => Some(
                "the first column has no name: if it only counts the rows, as the index of pandas does, write the file without it, \
                 to_csv(FILE, index=False)",
            ),
            Self::SampleShape { remedy: Remedy::SampleShape, .. } => Some(
                "set `sample_shape` under `data` to the shape of a sample, or export the model for this data",
            ),
            Self::SampleShape { remedy: Remedy::None, .. } => Some(
                "write the data in the order of the model's axes, or export the model for this data; numbers in another \
                 order would train into nonsense",
            ),
            Self::AllIgnored { .. } => {
                Some("correct the labels, or name the one that really counts nothing as `ignore_index`")
            }
            Self::TooManyInputs { .. } => Some(
                "for a table write under `[data.inputs]` which columns each input takes, INPUT = [\"COLUMN\", \"COLUMN\"]; else one array for each input \
                 and the label: numpy.savez(FILE, INPUT=a, OTHER=b, label=y)",
            ),
            Self::UnfitInputs { .. } => Some(
                "under `[data.inputs]` each input of the model has a line with its name and its columns; `syncline model show FILE` lists the inputs",
            ),
            Self::InputColumns { .. } => Some(
                "columns have the names of the header, which has to be the first line behind `skip_lines`, and each is of one input or of the label: \
                 correct `[data.inputs]`, `label_names`, or the header",
            ),
            Self::UnsupportedElement { remedy, .. } => Some(*remedy),
            Self::MissingTensor { .. } => Some(
                "arrays are called as the model's inputs, the label as `label`: numpy.savez(FILE, x=samples, label=labels)",
            ),
            Self::VocabularyTooLarge { .. } => {
                Some("export the model with a row of its embedding and an output for each character")
            }
            _ => None,
        };
        hint.map(str::to_owned)
    }
}
