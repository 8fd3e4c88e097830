//! Where the training samples lie and how to read them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Augment;

/// A data set on paths that every worker can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// The training part; where `split` divides it, the test part as well.
    pub source: Source,
    /// The test part, where it lies in files of its own; `split` is `all` then.
    #[serde(default)]
    pub test: Option<Source>,
    /// The validation part, where it lies in files of its own.
    #[serde(default)]
    pub validation: Option<Source>,
    /// So many in a hundred of the training samples, rounded up, are held out as the validation part: chosen by the seed, or the
    /// last ones where samples of a text overlap.
    #[serde(default)]
    pub validation_percent: Option<u32>,
    /// Each number of a float input is multiplied by this after reading (1/16 for the digits, 1/255 for bytes).
    #[serde(default = "one")]
    pub scale: f32,
    /// Subtracted after scaling: a number for each channel (the first axis of a sample), or one for all; empty: 0.
    #[serde(default)]
    pub mean: Vec<f32>,
    /// Divided by after that, in the same form; empty: 1.
    #[serde(default)]
    pub std: Vec<f32>,
    /// Which samples of `source` test.
    #[serde(default)]
    pub split: Split,
    /// Shape of one sample, without the batch dimension, where the files do not have the one that the model's only
    /// input wants; empty: as in the files.
    #[serde(default)]
    pub sample_shape: Vec<u32>,
    /// Order of the axes of images in the files, where it is not the model's; samples are transposed.
    #[serde(default)]
    pub layout: Option<AxisOrder>,
    /// How images change while they train; those that are validated and tested on never do.
    #[serde(default)]
    pub augment: Augment,
    /// BLAKE3 of the files, in the order of [`paths`](Self::paths). The client fills it in; a worker refuses other
    /// bytes.
    #[serde(default)]
    pub digest: Option<String>,
    /// Samples in the training part. The client fills it in.
    #[serde(default)]
    pub train_samples: u64,
}

/// All of it, as [`DataSpec::new`].
impl From<Source> for DataSpec {
    fn from(source: Source) -> Self {
        Self::new(source)
    }
}

impl DataSpec {
    /// All of `source` as it is: no scaling, no test part, samples of the files' shape.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            test: None,
            validation: None,
            validation_percent: None,
            scale: 1.0,
            mean: Vec::new(),
            std: Vec::new(),
            split: Split::All,
            sample_shape: Vec::new(),
            layout: None,
            augment: Augment::default(),
            digest: None,
            train_samples: 0,
        }
    }

    /// Changes fields in place: `DataSpec::new(source).with(|d| d.split = Split::TestEvery(5))`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Whether there is something to test on.
    pub fn has_test(&self) -> bool {
        self.test.is_some() || self.split != Split::All
    }

    /// Whether it is validated on samples of its own.
    pub fn has_validation(&self) -> bool {
        self.validation.is_some() || self.validation_percent.is_some()
    }

    /// All sources: that of the training part, of the test part, of the validation part.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        [Some(&self.source), self.test.as_ref(), self.validation.as_ref()].into_iter().flatten()
    }

    /// Every file, in the order of the sources.
    pub fn paths(&self) -> Vec<&str> {
        self.sources().flat_map(Source::paths).collect()
    }

    /// The same, to be changed.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        [Some(&mut self.source), self.test.as_mut(), self.validation.as_mut()]
            .into_iter()
            .flatten()
            .flat_map(Source::paths_mut)
            .collect()
    }
}

/// File format and path. `.gz` files are unpacked while reading. A path is one that every worker can read: an address such as
/// `s3://bucket/file` is refused (E487), fetch the file first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Numbers separated by commas, one sample a record; a header is skipped.
    Csv {
        /// Path of the file.
        path: String,
        /// How many of the last columns are the label, where `label_names` is empty.
        #[serde(default = "one_column")]
        label_columns: u32,
        /// The columns that are the label, by their names in the header.
        #[serde(default)]
        label_names: Vec<String>,
        /// Lines to skip at the top.
        #[serde(default)]
        skip_lines: u32,
    },
    /// The MNIST format: one file of images, one of labels.
    Idx {
        /// Path of the file of inputs, images or arrays of any other shape.
        images: String,
        /// Path of the file of labels, as many and in the same order.
        labels: String,
    },
    /// The binary format of CIFAR-10, one file after the other: images of 3x32x32 bytes.
    Cifar10 {
        /// Paths of the files, in the order in which their samples are counted.
        paths: Vec<String>,
    },
    /// A UTF-8 text. A sample is `context` characters, each as its index among the distinct characters of the text in
    /// ascending order; the labels are the characters that follow each of them.
    Text {
        /// Path of the file.
        path: String,
        /// Characters of one sample, at least 1.
        context: u32,
        /// Characters from the start of one sample to that of the next; 0: `context`, so that samples lie side by side.
        #[serde(default)]
        stride: u32,
    },
    /// Named arrays, called as the model's inputs are; the first axis of each counts the samples.
    Safetensors {
        /// Path of the file.
        path: String,
    },
    /// The same in a file of `numpy.savez` or `numpy.savez_compressed`.
    Npz {
        /// Path of the file.
        path: String,
    },
    /// Two files of `numpy.save`: one of the samples, one of the labels. The first axis of each counts the samples.
    Npy {
        /// Path of the file of inputs.
        samples: String,
        /// Path of the file of labels, as many and in the same order.
        labels: String,
    },
}

impl Source {
    /// A CSV file whose last column is the label.
    pub fn csv(path: impl AsRef<Path>) -> Self {
        Self::Csv { path: text(path), label_columns: 1, label_names: Vec::new(), skip_lines: 0 }
    }

    /// A CSV file with a header, in which the columns of these names are the label.
    pub fn csv_with_labels<N: Into<String>>(
        path: impl AsRef<Path>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        let label_names = names.into_iter().map(Into::into).collect();
        Self::Csv { path: text(path), label_columns: 1, label_names, skip_lines: 0 }
    }

    /// Two files of the MNIST format.
    pub fn idx(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Self {
        Self::Idx { images: text(images), labels: text(labels) }
    }

    /// Files of CIFAR-10, one after the other.
    pub fn cifar10<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::Cifar10 { paths: paths.into_iter().map(text).collect() }
    }

    /// A UTF-8 text in samples of `context` characters, side by side.
    pub fn text(path: impl AsRef<Path>, context: u32) -> Self {
        Self::Text { path: text(path), context, stride: 0 }
    }

    /// A safetensors file with an array for each input of the model, and one for the label.
    pub fn safetensors(path: impl AsRef<Path>) -> Self {
        Self::Safetensors { path: text(path) }
    }

    /// A file of `numpy.savez` with an array for each input of the model, and one for the label.
    pub fn npz(path: impl AsRef<Path>) -> Self {
        Self::Npz { path: text(path) }
    }

    /// Two files of `numpy.save`.
    pub fn npy(samples: impl AsRef<Path>, labels: impl AsRef<Path>) -> Self {
        Self::Npy { samples: text(samples), labels: text(labels) }
    }

    /// Whether its arrays have names, by which several inputs of a model find theirs.
    pub fn has_named_arrays(&self) -> bool {
        matches!(self, Self::Safetensors { .. } | Self::Npz { .. })
    }

    /// The files, in the order in which they are read and hashed.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Csv { path, .. }
            | Self::Text { path, .. }
            | Self::Safetensors { path }
            | Self::Npz { path } => vec![path],
            Self::Idx { images: samples, labels } | Self::Npy { samples, labels } => vec![samples, labels],
            Self::Cifar10 { paths } => paths.iter().map(String::as_str).collect(),
        }
    }

    /// The same, to be changed.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Csv { path, .. }
            | Self::Text { path, .. }
            | Self::Safetensors { path }
            | Self::Npz { path } => vec![path],
            Self::Idx { images: samples, labels } | Self::Npy { samples, labels } => vec![samples, labels],
            Self::Cifar10 { paths } => paths.iter_mut().collect(),
        }
    }
}

/// An order of the axes of images that models do not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisOrder {
    /// Height, width, channels. Samples of three axes become channels, height, width.
    Nhwc,
}

/// Which samples train and which test. In a job file `test_every` and `test_last_percent`, as all keys there are spelt; jobs are
/// stored with the names that they have always had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// All train; there is no test part, unless it lies in files of its own.
    #[default]
    All,
    /// Samples whose 0-based index is divisible by this test, the others train.
    #[serde(alias = "test_every")]
    TestEvery(u32),
    /// The last samples test, this many in a hundred, rounded up. Samples of a text that reach into the test part are
    /// left out.
    #[serde(alias = "test_last_percent")]
    TestLastPercent(u32),
}

impl Split {
    /// Whether sample `index` of `count` belongs to the test part.
    pub fn is_test(self, index: u64, count: u64) -> bool {
        match self {
            Self::All => false,
            Self::TestEvery(k) => k > 0 && index.is_multiple_of(u64::from(k)),
            Self::TestLastPercent(percent) => {
                index >= count.saturating_sub(count.saturating_mul(u64::from(percent)).div_ceil(100))
            }
        }
    }
}

/// A path as jobs are stored with it.
fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

fn one() -> f32 {
    1.0
}

fn one_column() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn sources_are_made_of_paths_of_any_type() {
        let sources = [
            (Source::csv("a.csv"), vec!["a.csv"]),
            (Source::csv_with_labels(Path::new("a.csv"), ["species"]), vec!["a.csv"]),
            (Source::idx(String::from("i.gz"), "l.gz"), vec!["i.gz", "l.gz"]),
            (Source::cifar10(["1.bin", "2.bin"]), vec!["1.bin", "2.bin"]),
            (Source::text(PathBuf::from("t.txt"), 8), vec!["t.txt"]),
            (Source::safetensors("s.safetensors"), vec!["s.safetensors"]),
            (Source::npz("a.npz"), vec!["a.npz"]),
            (Source::npy("x.npy", "y.npy"), vec!["x.npy", "y.npy"]),
        ];
        for (source, paths) in sources {
            assert_eq!(source.paths(), paths);
            assert_eq!(DataSpec::from(source.clone()), DataSpec::new(source));
        }
    }
}
