//! What a user asks for: the job graph and the settings of its training node, checked at the border.
//!
//! These types travel as postcard, which is not self-describing: no `flatten`, no inner tags, no skipped
//! fields.

mod augment;
mod checkpoint;
mod compression;
mod csv_source;
mod data;
mod data_settings;
mod evaluate;
mod files;
mod interval;
mod job;
mod layout;
mod learning_rate;
mod metric;
mod normalization;
mod optimizer;
mod policy;
mod policy_print;
mod policy_text;
mod reduced_rate;
mod resume;
mod separator;
mod setting;
pub mod setting_value;
mod settings_text;
mod source;
mod step_settings;
mod stored_parameter;
mod train;
mod train_settings;
mod valid_job;

pub use augment::Augment;
pub use checkpoint::CheckpointSpec;
pub use compression::{Compression, PullCompression};
pub use csv_source::CsvSource;
pub use data::{AxisOrder, DataSpec, Split};
pub use evaluate::{EarlyStopping, EvaluateSpec, ReduceOnPlateau};
pub use files::Files;
pub use job::{InvalidJob, JobSpec, MAX_NODES, Node, NodeKind};
pub use layout::{ElementRange, Layout, MAX_ELEMENTS, MAX_PARAMETERS, Parameter, ParameterKind, StepGroup};
pub use learning_rate::{Decay, LearningRate};
pub use metric::Metric;
pub use normalization::{ChannelAxis, Normalization};
pub use optimizer::{InvalidOptimizer, Optimizer};
pub use policy::{
    BalanceOptions, BalanceRule, DsspReading, ElasticOptions, InvalidPolicy, POLICIES, PolicyRule,
    PolicySpec, StepsOn,
};
pub use reduced_rate::ReducedRate;
pub use resume::{EvaluationsBefore, ResumeSpec, StepRun};
pub use separator::Separator;
pub use setting::{Setting, SettingList, SubmittedSettings};
pub use source::Source;
pub use step_settings::{MAX_LEARNING_RATE_FACTOR, StepSettings};
pub use train::{DataElement, DataInput, ModelSpec, OnNan, TrainSpec};
pub use valid_job::ValidJob;
