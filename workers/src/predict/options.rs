//! Which samples a model predicts, and where they are.

use std::sync::Arc;

use syncline_scheduler::spec::{DataSpec, Files, Source};

use super::PredictError;
use crate::{client::TrainedJob, data::expand_source};

/// Which samples of the data are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    /// Those that train.
    Train,
    /// Those that say how the training goes.
    Validation,
    /// Those that say what has come of it.
    Test,
    /// All of them.
    All,
}

impl Samples {
    /// As people name them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
            Self::All => "all",
        }
    }

    /// Those of a job on which its figures mean most: test samples, or else validation samples, or else all.
    pub fn most_telling(data: &DataSpec) -> Self {
        match (data.has_test(), data.has_validation()) {
            (true, _) => Self::Test,
            (false, true) => Self::Validation,
            (false, false) => Self::All,
        }
    }
}

/// On which samples a model predicts, and how.
#[derive(Debug, Clone)]
pub struct PredictOptions {
    /// Where the samples are.
    pub data: DataSpec,
    /// The data whose training set says what the columns of a CSV file are called: where both have a header,
    /// columns of `data` are found by their names, as those of a job's `test`. `None`: they are taken in
    /// their order.
    pub columns_of: Option<DataSpec>,
    /// What the only file of [`data`](Self::data) holds, where it came in another way than from a disk, such
    /// as the standard input; its path is what errors call it.
    pub given: Option<Arc<[u8]>>,
    /// Which of them.
    pub samples: Samples,
    /// What becomes of labels, where the model wants them; its loss and shares of right predictions need
    /// them. Where they are passed over, columns of a CSV file that are the label may be there or not, and
    /// `test_percent`, which draws by classes, draws others.
    pub labels: LabelUse,
    /// Samples that are computed at once.
    pub batch: usize,
}

/// What becomes of the labels of samples that are predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelUse {
    /// They are read, and predictions compared with them.
    Read,
    /// They are passed over, and may be missing.
    PassOver,
}

impl PredictOptions {
    /// On samples of the job itself.
    pub fn for_job(job: &TrainedJob, samples: Samples, batch: usize) -> Self {
        Self {
            data: job.train.data.clone(),
            columns_of: None,
            given: None,
            samples,
            labels: LabelUse::Read,
            batch,
        }
    }

    /// On all samples of other files, which are written as those of the job: columns of a CSV file are found
    /// by their names, where that of the job has names, too. It is read for them; with
    /// [`columns_of`](Self::columns_of) as `None` it is not, and columns are taken in their order.
    /// Columns that inputs of the job name are always found by these names.
    ///
    /// # Errors
    /// E577 if the job reads labels from files of their own and these are no pairs, or its samples are of a
    /// text, in which characters have other numbers.
    pub fn for_files(
        job: &TrainedJob,
        files: &[String],
        labels: LabelUse,
        batch: usize,
    ) -> Result<Self, PredictError> {
        let refused = |reason: String| Err(PredictError::OtherFiles { reason });
        let mut source = job.train.data.source.clone();
        match &mut source {
            Source::Text { .. } => {
                return refused(
                    "its samples are of a text, and the characters of another one have other numbers".into(),
                );
            }
            Source::Idx { .. } | Source::Npy { .. } if labels == LabelUse::PassOver => {
                return refused("its samples are in two files, of which the second has the labels".into());
            }
            _ => {}
        }
        match source.files_mut().as_mut_slice() {
            [all] => **all = Files(files.to_vec()),
            [samples, labels] => {
                let (of_samples, of_labels) = files.split_at(files.len() / 2);
                if of_samples.len() != of_labels.len() {
                    let came = files.len();
                    return refused(format!(
                        "it reads as many files of labels as of samples, and {came} came"
                    ));
                }
                (**samples, **labels) = (Files(of_samples.to_vec()), Files(of_labels.to_vec()));
            }
            _ => {}
        }
        expand_source(&mut source)?;
        let DataSpec { inputs, scale, mean, std, channel_axis, normalize, sample_shape, layout, .. } =
            job.train.data.clone();
        let of_source = DataSpec::new(source);
        let data =
            DataSpec { inputs, scale, mean, std, channel_axis, normalize, sample_shape, layout, ..of_source };
        let columns_of = Some(job.train.data.clone());
        Ok(Self { data, columns_of, given: None, samples: Samples::All, labels, batch })
    }

    /// On all samples of a file that came in another way than from a disk, written as those of the job, and
    /// called `name` in errors. One that is packed by gzip is unpacked.
    ///
    /// # Errors
    /// E577 as [`for_files`](Self::for_files), and if the job reads samples and labels from two files.
    pub fn for_bytes(
        job: &TrainedJob,
        name: &str,
        bytes: Vec<u8>,
        labels: LabelUse,
        batch: usize,
    ) -> Result<Self, PredictError> {
        if let Source::Idx { .. } | Source::Npy { .. } = job.train.data.source {
            let reason = format!("its samples and labels are in two files, and {name} is one");
            return Err(PredictError::OtherFiles { reason });
        }
        let options = Self::for_files(job, &[name.to_owned()], labels, batch)?;
        Ok(Self { given: Some(bytes.into()), ..options })
    }
}
