//! Where the training samples lie and how to read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Augment, ChannelAxis, CsvSource, Normalization, Source};
use crate::ids::ContentDigest;

/// A data set on paths that every worker can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// The training set; where `split` divides it, the test set as well.
    pub source: Source,
    /// The test set, where it lies in files of its own; `split` is `all` then.
    #[serde(default)]
    pub test: Option<Source>,
    /// The validation set, where it lies in files of its own.
    #[serde(default)]
    pub validation: Option<Source>,
    /// The columns of a table that each input of the model takes, in its order, by their names in the
    /// header; other columns but the label are not read. Empty: the only input takes all columns that
    /// are no label.
    #[serde(default)]
    pub inputs: BTreeMap<String, Vec<String>>,
    /// So many in a hundred of the training samples, rounded up, are held out as the validation set: chosen
    /// by a seed, or the last ones where samples of a text overlap.
    #[serde(default)]
    pub validation_percent: Option<u32>,
    /// What chooses them; `None`: the seed of the training. It also chooses the samples of
    /// [`Split::TestPercent`], beside which `None` is 0 for both: another seed of the training does not
    /// train on what tests.
    #[serde(default)]
    pub hold_out_seed: Option<u64>,
    /// [`Normalization::scale`] of all float inputs that have none of their own in
    /// [`normalize`](Self::normalize).
    #[serde(default = "one")]
    pub scale: f32,
    /// [`Normalization::mean`] of them.
    #[serde(default)]
    pub mean: Vec<f64>,
    /// [`Normalization::std`] of them.
    #[serde(default)]
    pub std: Vec<f64>,
    /// [`Normalization::standardize`] of them; of one input alone.
    #[serde(default)]
    pub standardize: bool,
    /// [`Normalization::channel_axis`] of them.
    #[serde(default)]
    pub channel_axis: ChannelAxis,
    /// The normalization of each float input that has one of its own; nothing of the fields above holds for
    /// it. [`normalization_of`](Self::normalization_of) says what holds for an input.
    #[serde(default)]
    pub normalize: BTreeMap<String, Normalization>,
    /// Which samples of `source` test.
    #[serde(default)]
    pub split: Split,
    /// Shape of one sample, without the batch dimension, where the files do not have the one that the
    /// model's only input wants; empty: as in the files.
    #[serde(default)]
    pub sample_shape: Vec<u32>,
    /// Order of the axes of images in the files, where it is not the model's; samples are transposed.
    #[serde(default)]
    pub layout: Option<AxisOrder>,
    /// How images change while they train; those that are validated and tested on never do.
    #[serde(default)]
    pub augment: Augment,
    /// BLAKE3 of all files, one after the other, in the order of [`paths`](Self::paths). The client fills it
    /// in; a worker refuses other bytes.
    #[serde(default)]
    pub digest: Option<ContentDigest>,
    /// BLAKE3 of each of them, where they are several: they say which one is another one. The client fills
    /// it in.
    #[serde(default)]
    pub file_digests: Vec<ContentDigest>,
    /// Samples in the training set. The client fills it in.
    #[serde(default)]
    pub train_samples: u64,
    /// What the classes are called, from 0, where the labels of a CSV file are texts. The client fills it
    /// in.
    #[serde(default)]
    pub class_names: Vec<String>,
}

/// All of it, as [`DataSpec::new`].
impl From<Source> for DataSpec {
    fn from(source: Source) -> Self {
        Self::new(source)
    }
}

/// All of it, as [`DataSpec::new`].
impl From<CsvSource> for DataSpec {
    fn from(source: CsvSource) -> Self {
        Self::new(source)
    }
}

impl DataSpec {
    /// All of `source` as it is: no scaling, no test set, samples of the files' shape.
    pub fn new(source: impl Into<Source>) -> Self {
        Self {
            source: source.into(),
            test: None,
            validation: None,
            inputs: BTreeMap::new(),
            validation_percent: None,
            hold_out_seed: None,
            scale: 1.0,
            mean: Vec::new(),
            std: Vec::new(),
            standardize: false,
            channel_axis: ChannelAxis::First,
            normalize: BTreeMap::new(),
            split: Split::All,
            sample_shape: Vec::new(),
            layout: None,
            augment: Augment::default(),
            digest: None,
            file_digests: Vec::new(),
            train_samples: 0,
            class_names: Vec::new(),
        }
    }

    /// Changes fields in place: `DataSpec::new(source).with(|d| d.split = Split::TestEvery(5))`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// This input of the model takes these columns of a table, by their names in the header.
    ///
    /// ```
    /// # use syncline_scheduler::spec::{CsvSource, DataSpec};
    /// let people = CsvSource::new("people.csv").label_names(["bought"]);
    /// let data = DataSpec::new(people).input("categories", ["city", "job"]).input("numbers", ["age"]);
    /// ```
    #[must_use]
    pub fn input<N: Into<String>>(
        mut self,
        input: impl Into<String>,
        columns: impl IntoIterator<Item = N>,
    ) -> Self {
        self.inputs.insert(input.into(), columns.into_iter().map(Into::into).collect());
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

    /// All sources: that of the training set, of the test set, of the validation set.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        [Some(&self.source), self.test.as_ref(), self.validation.as_ref()].into_iter().flatten()
    }

    /// Every file, in the order of the sources.
    pub fn paths(&self) -> Vec<&str> {
        self.sources().flat_map(Source::paths).collect()
    }

    /// All sources, to be changed.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut Source> {
        [Some(&mut self.source), self.test.as_mut(), self.validation.as_mut()].into_iter().flatten()
    }

    /// Every file, to be changed.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        self.sources_mut().flat_map(Source::paths_mut).collect()
    }
}

/// An order of the axes of images that models do not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisOrder {
    /// Height, width, channels. Samples of three axes become channels, height, width.
    Nhwc,
}

/// Which samples train and which test. In a job file `test_every`, `test_percent` and `test_last_percent`, as
/// all keys there are spelt; jobs are stored with the names that they have always had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// All train; there is no test set, unless it lies in files of its own.
    #[default]
    All,
    /// Samples whose 0-based index is divisible by this test, the others train.
    #[serde(alias = "test_every")]
    TestEvery(u32),
    /// So many in a hundred of the samples test, rounded up: any of them, chosen by `hold_out_seed`, where
    /// labels are classes of each its share; or the last ones, as below, where samples of a text overlap.
    #[serde(alias = "test_percent")]
    TestPercent(u32),
    /// The last samples test, this many in a hundred, rounded up. Samples of a text that reach into the test
    /// set are left out.
    #[serde(alias = "test_last_percent")]
    TestLastPercent(u32),
}

fn one() -> f32 {
    1.0
}
