//! Why a job of general tasks was not submitted, or a task's value could not be had.

use syncline_ps::PsError;
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::{InvalidName, JobId},
    tasks::{TaskIndex, TaskState},
};

use crate::{client::ClientError, functions::InvalidCall};

/// Why a job of general tasks was not submitted, or a task's value could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The engine could not be asked, or does not do it.
    #[error(transparent)]
    Engine(#[from] ClientError),
    /// A shard did not take a large constant, or did not give a large value.
    #[error(transparent)]
    Shard(#[from] PsError),
    /// The id of the graph, or what should name a task, is no name.
    #[error(transparent)]
    Id(#[from] InvalidName),
    /// The graph holds a call that cannot be made; nothing was stored.
    #[error(transparent)]
    Call(#[from] InvalidCall),
    /// The task has ended without a value.
    #[error("[E341] task {task} of job {job} gives nothing, it is {state}: {reason}")]
    NoValue {
        /// Job of the task.
        job: JobId,
        /// Index of the task in the job, from 0.
        task: TaskIndex,
        /// How it ended: failed, skipped or canceled.
        state: TaskState,
        /// Code of the failure that the reason tells of, such as that of a task for want of which this one
        /// was skipped.
        code: Option<FaultCode>,
        /// Why, in a sentence without a full stop.
        reason: String,
    },
    /// The task is done, and its value was let go once other tasks had taken it.
    #[error("[E342] the value of task {task} of job {job} is not kept: others took it, and it has no name")]
    NotKept {
        /// Job of the task.
        job: JobId,
        /// Index of the task in the job, from 0.
        task: TaskIndex,
    },
    /// No shard has its value any more.
    #[error("[E669] the value of task {task} of job {job} is lost: {cause}")]
    Lost {
        /// Job of the task.
        job: JobId,
        /// Index of the task in the job, from 0.
        task: TaskIndex,
        /// What the shards say.
        cause: PsError,
    },
    /// Its bytes are those of another type.
    #[error("[E343] the value of task {task} of job {job} is no {wanted}: {cause}")]
    Decode {
        /// Job of the task.
        job: JobId,
        /// Index of the task in the job, from 0.
        task: TaskIndex,
        /// Rust type of the handle.
        wanted: &'static str,
        /// What postcard says.
        cause: String,
    },
    /// The handle is that of another graph than the one that was submitted, whose values may be of other
    /// types.
    #[error(
        "[E598] the handle of task {task} is of another graph than the one that was submitted as job {job}"
    )]
    OtherGraph {
        /// Job that was asked about.
        job: JobId,
        /// Index of the task in the other graph, from 0.
        task: TaskIndex,
    },
    /// The job has fewer tasks, or none of that name.
    #[error("[E344] job {job} has no task {task}")]
    Unknown {
        /// Job that was asked about.
        job: JobId,
        /// Index or name that was given.
        task: String,
    },
}

impl TaskError {
    /// The stable code, as in the message.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Engine(source) => return source.code(),
            Self::Shard(source) => source.code(),
            Self::Id(source) => source.code(),
            Self::Call(source) => source.code(),
            Self::NoValue { .. } => "E341",
            Self::NotKept { .. } => "E342",
            Self::Decode { .. } => "E343",
            Self::Unknown { .. } => "E344",
            Self::OtherGraph { .. } => "E598",
            Self::Lost { .. } => "E669",
        })
    }

    /// Whether the same call may succeed later: an engine or a shard is away, or Redis or a disk does not do
    /// its part.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_passing(),
            Self::Shard(error) => error.may_pass(),
            _ => false,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Engine(error) => return error.hint(),
            Self::Shard(error) => return error.hint(),
            Self::Id(_) => "give another name, of a job or a task".to_owned(),
            Self::Call(error) => return error.hint(),
            Self::NoValue { job, task, .. } => format!(
                "`syncline tasks {job} {task}` explains it; `replace_tasks` of the same graph runs it anew, `submit_tasks` gives the job that is there"
            ),
            Self::NotKept { .. } => {
                "give the task a name, with `CallOptions::new().name(\"...\")`: values of tasks with a name, and of those that no other task takes, are kept"
                    .to_owned()
            }
            Self::Decode { .. } => {
                "build the graph in the same way as it was submitted, with the same functions, of types that postcard can read: none with `#[serde(tag)]`, `#[serde(untagged)]` or `#[serde(flatten)]`"
                    .to_owned()
            }
            Self::OtherGraph { .. } => {
                "use the handles that this graph gave while it was built; a program that has built it anew submits it once more, which gives the job that is there"
                    .to_owned()
            }
            Self::Lost { .. } => {
                "`replace_tasks` of the same graph runs it anew; `--replicas 2` keeps values where a machine is lost"
                    .to_owned()
            }
            Self::Unknown { job, .. } => format!("`syncline tasks {job}` lists them"),
        };
        Some(hint)
    }
}
