//! Where the training samples lie and how to read them.

use serde::{Deserialize, Serialize};

/// A data set on a path that every worker can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    pub source: Source,
    /// Each feature is multiplied by this after reading (1/16 for the digits, 1/255 for bytes).
    #[serde(default = "one")]
    pub scale: f32,
    #[serde(default)]
    pub split: Split,
    /// Shape of one sample, in the order of the model's input without the batch dimension; empty: a flat vector.
    #[serde(default)]
    pub sample_shape: Vec<u32>,
    /// BLAKE3 of the files, in the order features, labels. The client fills it in; a worker refuses other bytes.
    #[serde(default)]
    pub digest: Option<String>,
    /// Samples in the training part. The client fills it in.
    #[serde(default)]
    pub train_samples: u64,
}

impl DataSpec {
    /// All of `source` as it is: no scaling, no test part, flat samples.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            scale: 1.0,
            split: Split::All,
            sample_shape: Vec::new(),
            digest: None,
            train_samples: 0,
        }
    }
}

/// File format and place. `.gz` files are unpacked while reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Numbers separated by commas, one sample a line, no header; the last `label_columns` columns are the label.
    Csv {
        path: String,
        #[serde(default = "one_column")]
        label_columns: u32,
        /// Rows to skip at the top.
        #[serde(default)]
        skip_lines: u32,
    },
    /// The MNIST format: one file of images, one of labels.
    Idx { images: String, labels: String },
}

/// Which samples train and which test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// All train; there is no test part.
    #[default]
    All,
    /// Samples whose 0-based index is divisible by this test, the others train.
    TestEvery(u32),
}

impl Split {
    /// Whether sample `index` belongs to the test part.
    pub fn is_test(self, index: u64) -> bool {
        matches!(self, Self::TestEvery(k) if k > 0 && index.is_multiple_of(u64::from(k)))
    }
}

fn one() -> f32 {
    1.0
}

fn one_column() -> u32 {
    1
}
