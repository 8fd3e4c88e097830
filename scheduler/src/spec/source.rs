//! The formats that samples are read from.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{CsvSource, Files};

/// File format and path. `.gz` files are unpacked while reading. A path is one that every worker can read: an
/// address such as `s3://bucket/file` is refused (E487), fetch the file first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Numbers between separators, one sample a record; a header is skipped.
    Csv(CsvSource),
    /// The MNIST format: files of images, and as many of labels.
    Idx {
        /// The files of inputs, images or arrays of any other shape.
        images: Files,
        /// The files of labels, one for each of inputs, with as many in the same order.
        labels: Files,
    },
    /// The binary format of CIFAR-10, one file after the other: images of 3x32x32 bytes.
    Cifar10 {
        /// The files, in the order in which their samples are counted.
        paths: Files,
    },
    /// A UTF-8 text. A sample is `context` characters, each as its index among the distinct characters of the
    /// text in ascending order; the labels are the characters that follow each of them.
    Text {
        /// Path of the file.
        path: String,
        /// Characters of one sample, at least 1.
        context: u32,
        /// Characters from the start of one sample to that of the next; 0: `context`, so that samples lie
        /// side by side.
        #[serde(default)]
        stride: u32,
    },
    /// Named arrays, called as the model's inputs are; the first axis of each counts the samples.
    Safetensors {
        /// The files.
        path: Files,
    },
    /// Named arrays in files of `numpy.savez` or `numpy.savez_compressed`; the first axis of each counts the
    /// samples.
    Npz {
        /// The files.
        path: Files,
    },
    /// Files of `numpy.save`: of the samples, and as many of the labels. The first axis of each counts the
    /// samples.
    Npy {
        /// The files of inputs.
        samples: Files,
        /// The files of labels, one for each of inputs, with as many in the same order.
        labels: Files,
    },
}

impl Source {
    /// CSV files whose last column is the label; [`CsvSource`] reads others. Here and below one path is given
    /// or a list of them, and `part-*.csv` stands for all files of such a name.
    pub fn csv(files: impl Into<Files>) -> Self {
        CsvSource::new(files).into()
    }

    /// Files of the MNIST format: of images, and as many of labels.
    pub fn idx(images: impl Into<Files>, labels: impl Into<Files>) -> Self {
        Self::Idx { images: images.into(), labels: labels.into() }
    }

    /// Files of CIFAR-10, one after the other.
    pub fn cifar10<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::Cifar10 { paths: Files::of(paths) }
    }

    /// A UTF-8 text in samples of `context` characters, side by side.
    pub fn text(path: impl AsRef<Path>, context: u32) -> Self {
        Self::Text { path: path.as_ref().to_string_lossy().into_owned(), context, stride: 0 }
    }

    /// Safetensors files with an array for each input of the model, and one for the label.
    pub fn safetensors(files: impl Into<Files>) -> Self {
        Self::Safetensors { path: files.into() }
    }

    /// Files of `numpy.savez` with an array for each input of the model, and one for the label.
    pub fn npz(files: impl Into<Files>) -> Self {
        Self::Npz { path: files.into() }
    }

    /// Files of `numpy.save`: of samples, and as many of labels.
    pub fn npy(samples: impl Into<Files>, labels: impl Into<Files>) -> Self {
        Self::Npy { samples: samples.into(), labels: labels.into() }
    }

    /// Whether its arrays have names, by which several inputs of a model find theirs.
    pub fn has_named_arrays(&self) -> bool {
        matches!(self, Self::Safetensors { .. } | Self::Npz { .. })
    }

    /// The files, in the order in which they are read and hashed.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Text { path, .. } => vec![path],
            Self::Csv(CsvSource { path: files, .. })
            | Self::Safetensors { path: files }
            | Self::Npz { path: files }
            | Self::Cifar10 { paths: files } => files.iter().collect(),
            Self::Idx { images: samples, labels } | Self::Npy { samples, labels } => {
                samples.iter().chain(labels.iter()).collect()
            }
        }
    }

    /// The paths of its files, to be changed.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Text { path, .. } => vec![path],
            other => other.files_mut().into_iter().flat_map(|files| &mut files.0).collect(),
        }
    }

    /// The lists of files, to be changed: two where samples and labels lie in files of their own; none of a
    /// text, which is one file.
    pub fn files_mut(&mut self) -> Vec<&mut Files> {
        match self {
            Self::Text { .. } => Vec::new(),
            Self::Csv(CsvSource { path: files, .. })
            | Self::Safetensors { path: files }
            | Self::Npz { path: files }
            | Self::Cifar10 { paths: files } => vec![files],
            Self::Idx { images: samples, labels } | Self::Npy { samples, labels } => vec![samples, labels],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::spec::DataSpec;

    #[test]
    fn sources_are_made_of_paths_of_any_type() {
        let sources = [
            (Source::csv("a.csv"), vec!["a.csv"]),
            (Source::csv(vec![PathBuf::from("a.csv"), PathBuf::from("b.csv")]), vec!["a.csv", "b.csv"]),
            (CsvSource::new(Path::new("a.csv")).label_names(["species"]).into(), vec!["a.csv"]),
            (Source::idx(["i1", "i2"], &["l1", "l2"][..]), vec!["i1", "i2", "l1", "l2"]),
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
