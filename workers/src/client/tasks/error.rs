//! Why a job of general tasks was not submitted, or a task's value could not be had.

use syncline_ps::PsError;
use syncline_scheduler::{
    ids::{InvalidName, JobId},
    tasks::{TaskIndex, TaskState},
};

use crate::{client::ClientError, functions::InvalidCall};

/// Why a job of general tasks was not submitted, or a task's value could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    #[error(transparent)]
    Engine(#[from] ClientError),
    #[error(transparent)]
    Shard(#[from] PsError),
    #[error(transparent)]
    Id(#[from] InvalidName),
    #[error(transparent)]
    Call(#[from] InvalidCall),
    #[error("[E341] task {task} of job {job} gives nothing, it is {state}: {reason}")]
    NoValue { job: JobId, task: TaskIndex, state: TaskState, reason: String },
    #[error("[E342] the value of task {task} of job {job} is not kept: others took it")]
    NotKept { job: JobId, task: TaskIndex },
    #[error("[E343] the value of task {task} of job {job} is no {wanted}: {cause}")]
    Decode { job: JobId, task: TaskIndex, wanted: &'static str, cause: String },
    #[error("[E344] job {job} has no task {task}")]
    Unknown { job: JobId, task: String },
}

impl TaskError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Shard(error) => error.hint().to_owned(),
            Self::Id(_) => "give the job another name".to_owned(),
            Self::Call(_) => "correct the call; nothing was stored".to_owned(),
            Self::NoValue { job, .. } => format!("`syncline tasks {job} --state failed` lists what failed"),
            Self::NotKept { .. } => {
                "give the task a name: values of tasks with a name, and of those that no other task takes, are kept"
                    .to_owned()
            }
            Self::Decode { .. } => {
                "build the graph in the same way as it was submitted, with the same functions".to_owned()
            }
            Self::Unknown { job, .. } => format!("`syncline tasks {job}` lists them"),
        }
    }
}
