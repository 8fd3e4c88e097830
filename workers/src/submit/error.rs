//! Why a job could not be submitted.

use std::path::PathBuf;

use syncline_autodiff::AutodiffError;
use syncline_ps::PsError;
use syncline_scheduler::{
    ids::InvalidName,
    spec::{InvalidJob, InvalidPolicy},
};

#[cfg(feature = "train")]
use crate::isolation::ModelError;
use crate::{client::ClientError, data::DataError};

/// Why a job could not be submitted. Nothing of it has been stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    #[error(transparent)]
    Job(#[from] InvalidJob),
    /// A ready training graph is not one.
    #[error(transparent)]
    Graph(#[from] AutodiffError),
    #[cfg(feature = "train")]
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There is no ONNX Runtime to load it with.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Kit(#[from] syncline_kit::KitError),
    #[error("[E367] this program was built without deriving: it submits ready training graphs only")]
    NeedsTrain,
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Upload(#[from] PsError),
    #[error(transparent)]
    Engine(#[from] ClientError),
    #[error("[E360] cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("[E361] {path} is not a job file: {cause}")]
    File { path: PathBuf, cause: String },
    #[error("[E364] node {node} evaluates, but the data has no test part; set `split`")]
    NoTest { node: String },
    #[error("[E365] the model's output for the loss has no fixed number of classes")]
    Classes,
    #[error("[E366] a ready-made training graph trains as it is: {settings} would mean nothing")]
    ReadySettings { settings: String },
    #[error(
        "[E470] worker {worker} computes on the CPU, where ONNX Runtime has no {precision} kernel for {op}"
    )]
    MissingKernel { worker: String, op: String, precision: &'static str },
    #[error("[E368] the training cannot go on from {path}: {what}")]
    Resume { path: PathBuf, what: String },
    #[error("[E485] the model's input {input} takes {element}; data is float32, int32 or int64")]
    InputType { input: String, element: String },
}

impl SubmitError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Engine(e) => e.hint(),
            Self::Upload(e) => e.hint().to_owned(),
            Self::Graph(e) => e
                .hint()
                .unwrap_or("`syncline model show FILE` shows what is in a model")
                .to_owned(),
            #[cfg(feature = "train")]
            Self::Kit(e) => e.hint(),
            Self::NeedsTrain => {
                "build it with feature `train` of the crate `syncline`, or submit what `syncline model train-graph` writes"
                    .to_owned()
            }
            #[cfg(feature = "train")]
            Self::Model(e) => {
                e.hint().unwrap_or("`syncline model show FILE` shows what is in a model").to_owned()
            }
            Self::Data(e) => {
                e.hint().unwrap_or("correct the data file, or the settings under `data`").to_owned()
            }
            Self::Read { .. } => {
                "paths in a job file are relative to the file itself, all others to the current folder".to_owned()
            }
            Self::File { .. } => {
                "docs/job-file.md lists every field with its default and an example".to_owned()
            }
            Self::MissingKernel { .. } => "use `precision = \"f32\"`, or workers with a GPU only".to_owned(),
            Self::ReadySettings { .. } => {
                "submit the forward model with these settings, or leave them out; `syncline model train-graph` has flags \
                 for them"
                    .to_owned()
            }
            Self::Resume { .. } => {
                "submit the job with the settings that it had, or without --resume; `syncline checkpoint JOB FILE` writes such a file"
                    .to_owned()
            }
            Self::InputType { .. } => "cast inside the model, and export it again".to_owned(),
            _ => "correct the job and submit it again; nothing was stored".to_owned(),
        }
    }
}
