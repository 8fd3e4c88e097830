//! Why a job could not be submitted.

use std::{io::ErrorKind::InvalidData, path::PathBuf};

use syncline_autodiff::AutodiffError;
use syncline_ps::PsError;
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::InvalidName,
    spec::{InvalidJob, InvalidPolicy},
};

#[cfg(feature = "train")]
use crate::isolation::ModelError;
use crate::{
    client::ClientError,
    data::{DataError, FileError},
    export::ExportError,
};

/// Why a job could not be submitted. Nothing of it has been stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The id of the job, or a name in its graph, is no name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// For programs that parse a policy: submission itself takes one that is parsed.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// A graph that cannot run, or a setting that makes no sense.
    #[error(transparent)]
    Job(#[from] InvalidJob),
    /// A ready training graph is not one.
    #[error(transparent)]
    Graph(#[from] AutodiffError),
    /// What was to be uploaded as a model is none.
    #[error("{error}, in {model}")]
    NoModel {
        /// The file, or `the model` where it is none.
        model: String,
        /// What is wrong with it.
        error: AutodiffError,
    },
    /// The model cannot be trained, or did not survive being loaded.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file of first weights is none, or does not fit the model.
    #[error(transparent)]
    Weights(#[from] ExportError),
    /// A forward model, and nothing that could derive a training graph.
    #[error("[E367] this program was built without deriving: it submits ready training graphs only")]
    NeedsTrain,
    /// The data cannot be read here, or does not fit the model.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The labels do not fit the first output of the model, at which the loss looks if nobody names one.
    #[error("{error}; they fit its output `{output}`")]
    OtherOutput {
        /// What does not fit.
        #[source]
        error: Box<DataError>,
        /// The output that they would fit.
        output: String,
    },
    /// A shard did not take a blob, or stayed away for 20 seconds.
    #[error(transparent)]
    Upload(#[from] PsError),
    /// The engine could not be asked, or refused the job.
    #[error(transparent)]
    Engine(#[from] ClientError),
    /// A job file, or a file that a command names.
    #[error("[E360] cannot read {path}")]
    Unreadable {
        /// File that was tried.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A file that the job names.
    #[error("[E360] cannot read {path}")]
    Read {
        /// File that was tried.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The text is no TOML, or not of the fields that a job file has.
    #[error("[E361] {path} is not a job file: {cause}")]
    File {
        /// The job file.
        path: PathBuf,
        /// What is wrong, in words that name the field or the line.
        cause: String,
    },
    /// A field of a job file that was to have another value, which there is not, or which does not take it.
    #[cfg(feature = "job-file")]
    #[error("[E369] `{change}` cannot be set: {cause}")]
    Change {
        /// Key and value, as they were given.
        change: String,
        /// What is wrong, in words that name the fields that there are.
        cause: String,
        /// Whether it is written as no change can be, or names nothing that has fields.
        is_misshapen: bool,
    },
    /// There would be nothing to evaluate on.
    #[error("[E364] node {node} evaluates, but the data has no {lacks}")]
    NoTest {
        /// First node that evaluates.
        node: String,
        /// What it could evaluate on, and how the data gets that, in words.
        lacks: &'static str,
    },
    /// What is best could never be said.
    #[error("[E374] node {node} is to monitor the accuracy, which its loss does not compute")]
    NoAccuracy {
        /// The node that trains.
        node: String,
    },
    /// What is best could never be said.
    #[error("[E605] node {node} is to monitor {monitor}, which needs {needs}")]
    NotCounted {
        /// The node that trains.
        node: String,
        /// The figure, as a job file has it.
        monitor: &'static str,
        /// What it is counted for, in words.
        needs: &'static str,
    },
    /// Integer labels are classes, and nothing says how many there are.
    #[error("[E365] the model's output for the loss has no fixed number of classes")]
    Classes,
    /// `balanced` weights divide by what each class has.
    #[error(
        "[E607] `class_weights = \"balanced\"` cannot be counted: class {class} of {classes} has no training label"
    )]
    AbsentClass {
        /// Number of the class, or its name in quotes.
        class: String,
        /// Classes that the model tells apart.
        classes: u32,
    },
    /// `balanced` weights divide by how many labels are 1, and have to be above 0.
    #[error(
        "[E604] `pos_weight = \"balanced\"` cannot be counted: class {class} of {classes} has no training label {label}"
    )]
    AbsentAnswer {
        /// Number of the class.
        class: usize,
        /// Classes, of each of which a sample says whether it is there.
        classes: usize,
        /// What its labels would have to be, in words.
        label: &'static str,
    },
    /// Settings that say how to derive a graph, and a graph that is not derived.
    #[error("[E366] a ready-made training graph trains as it is: {settings} would mean nothing")]
    ReadySettings {
        /// Names of these settings, with commas between.
        settings: String,
    },
    /// No CPU can compute the job, and a worker that computes on one is there.
    #[error(
        "[E470] worker {worker} computes on the CPU, where ONNX Runtime has no {precision} kernel for {op}"
    )]
    MissingKernel {
        /// Name of the first such worker.
        worker: String,
        /// Operator, as ONNX Runtime names it.
        op: String,
        /// Precision that the job asks for.
        precision: &'static str,
    },
    /// The file is no checkpoint, or one of another model or optimizer.
    #[error("[E368] the training cannot go on from {path}: {what}")]
    Resume {
        /// The checkpoint file.
        path: PathBuf,
        /// What is wrong with it or differs, in words.
        what: String,
    },
    /// A name or pattern in a group of parameters means none that is trained.
    #[error("[E378] group {group}: no parameter that is trained is called {named}; there are {trained}")]
    NoSuchParameter {
        /// Number of the group, from 1.
        group: usize,
        /// Name or pattern, with the names that could be meant.
        named: String,
        /// The first of the parameters that are trained, and how many more there are.
        trained: String,
    },
    /// A group of parameters that gives no number, or to no parameter.
    #[error("[E379] group {group} changes nothing: {why}")]
    IdleGroup {
        /// Number of the group, from 1.
        group: usize,
        /// What makes it so, in words.
        why: &'static str,
    },
    /// No data set can feed the model.
    #[error("[E485] the model's input {input} takes {element}; data is float32, int32, int64 or bool")]
    InputType {
        /// Data input of the model.
        input: String,
        /// Its element type.
        element: String,
    },
}

impl SubmitError {
    /// The stable code, as in the message.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Name(source) => source.code(),
            Self::Policy(source) => source.code(),
            Self::Job(source) => return source.code(),
            Self::Graph(source) => source.code(),
            #[cfg(feature = "train")]
            Self::Model(source) => return source.code(),
            Self::NoModel { error, .. } => error.code(),
            Self::Weights(source) => source.code(),
            Self::NeedsTrain => "E367",
            Self::Data(source) => source.code(),
            Self::OtherOutput { error, .. } => error.code(),
            Self::Upload(source) => source.code(),
            Self::Engine(source) => return source.code(),
            Self::Read { .. } | Self::Unreadable { .. } => "E360",
            Self::File { .. } => "E361",
            #[cfg(feature = "job-file")]
            Self::Change { .. } => "E369",
            Self::NoAccuracy { .. } => "E374",
            Self::NotCounted { .. } => "E605",
            Self::NoTest { .. } => "E364",
            Self::Classes => "E365",
            Self::AbsentClass { .. } => "E607",
            Self::AbsentAnswer { .. } => "E604",
            Self::ReadySettings { .. } => "E366",
            Self::MissingKernel { .. } => "E470",
            Self::Resume { .. } => "E368",
            Self::NoSuchParameter { .. } => "E378",
            Self::IdleGroup { .. } => "E379",
            Self::InputType { .. } => "E485",
        })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let of_a_model = || Some("`syncline model show FILE` shows what is in a model".to_owned());
        let hint = match self {
            Self::Engine(e) => return e.hint(),
            Self::Upload(e) => return e.hint(),
            Self::Graph(e) | Self::NoModel { error: e, .. } => return e.hint().or_else(of_a_model),
            Self::Weights(e) => return e.hint(),
            Self::Policy(e) => return e.hint(),
            Self::NeedsTrain => {
                "build it with feature `train` of the crate `syncline`, or submit what `syncline model train-graph` writes"
                    .to_owned()
            }
            #[cfg(feature = "train")]
            Self::Model(e) => return e.hint().or_else(of_a_model),
            Self::OtherOutput { output, .. } => {
                format!("name it in the model: `output = \"{output}\"` beside `loss`, or correct the labels")
            }
            Self::Data(DataError::File(FileError::Io { .. })) => {
                "submission reads the data on this machine, and every worker on its own: the path must exist on all of them. One in a job file is \
                 relative to the file itself"
                    .to_owned()
            }
            Self::Data(e) => {
                let usual = || "correct the data file, or the settings under `data`".to_owned();
                e.hint().unwrap_or_else(usual)
            }
            Self::Unreadable { source, path } if source.kind() == InvalidData && path.extension().is_some_and(|e| e == "onnx") => {
                "name a job file, which is TOML as examples/jobs/digits.toml is, and has the model in `model.forward`".to_owned()
            }
            Self::Unreadable { .. } => "name a file that is there and that you may read".to_owned(),
            Self::Read { .. } => {
                "paths in a job file are relative to the file itself, all others to the current folder".to_owned()
            }
            Self::File { .. } => {
                "docs/job-file.md lists every field with its default and an example".to_owned()
            }
            #[cfg(feature = "job-file")]
            Self::Change { is_misshapen: false, .. } => {
                "docs/job-file.md lists every field with the values that it takes".to_owned()
            }
            #[cfg(feature = "job-file")]
            Self::Change { .. } => {
                "write it as `settings.batch=64`, in a file with nodes also as `test.retries=5`; docs/job-file.md lists every field".to_owned()
            }
            Self::MissingKernel { precision: "bf16", .. } => {
                "use `precision = \"fp16\"`, which CPUs compute, or \"f32\", or workers with a GPU only".to_owned()
            }
            Self::MissingKernel { .. } => "use `precision = \"f32\"`, or workers with a GPU only".to_owned(),
            Self::ReadySettings { .. } => {
                "submit the forward model with these settings, or leave them out; `syncline model train-graph` has flags \
                 for them"
                    .to_owned()
            }
            Self::Resume { .. } => {
                "submit the job with the model, `freeze`, parameters and held-out samples that it had, or without --resume; `syncline checkpoint JOB FILE` \
                 writes such a file. Parameters alone, of a snapshot or of PyTorch, begin a new training as `model.forward.weights`"
                    .to_owned()
            }
            Self::NoAccuracy { .. } => {
                "leave `monitor` out, which then is the loss; losses of classes compute an accuracy".to_owned()
            }
            Self::NotCounted { .. } => "monitor the `accuracy`, or the loss, by leaving `monitor` out".to_owned(),
            Self::NoSuchParameter { .. } => {
                "`syncline model show FILE` lists the parameters, and says which of them are trained".to_owned()
            }
            Self::AbsentClass { .. } => {
                "give one number for each class, as in `class_weights = [1.0, 2.0]`, or training data that has all of them; \
                 `syncline submit FILE --dry-run` without `class_weights` shows what is read"
                    .to_owned()
            }
            Self::AbsentAnswer { .. } => {
                "give one number for each class, as in `pos_weight = [1.0, 2.0]`, or training data in which each class is there in some \
                 samples and not in others"
                    .to_owned()
            }
            Self::IdleGroup { .. } => {
                "give it parameters that no group before it names, with a `weight_decay` or a `learning_rate_factor`, or leave it out".to_owned()
            }
            Self::InputType { .. } => "cast inside the model, and export it again".to_owned(),
            _ => "correct the job and submit it again; nothing was stored".to_owned(),
        };
        Some(hint)
    }
}
