//! The same for several jobs.

use serde::Serialize;
use syncline_scheduler::{
    ids::JobId,
    tasks::{TaskIndex, TaskState, TaskView},
};

use crate::cli::{Exit, Failure, print_json, print_json_line, say};

/// Jobs that a command changes.
#[derive(Debug, clap::Args)]
pub struct SeveralJobs {
    /// Id of the job; of several, it is done for those for which it can be, and why not for others is told
    #[arg(required = true, value_name = "JOB")]
    pub(super) jobs: Vec<JobId>,
    /// One JSON object on stdout; of several jobs one for each, in a line of its own
    #[arg(long)]
    pub(super) json: bool,
}

impl SeveralJobs {
    /// Does something with each job. One that the engine refuses keeps no other back: each refusal is told,
    /// and the last one is the end.
    pub(super) async fn each(
        &self,
        act: impl AsyncFnMut(&JobId) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.each_of(&self.jobs, act).await
    }

    /// The same for each of other things that belong to jobs.
    pub(super) async fn each_of<T>(
        &self,
        jobs: &[T],
        mut act: impl AsyncFnMut(&T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut refused = None::<Failure>;
        for job in jobs {
            match act(job).await {
                Ok(()) => {}
                Err(failure) if failure.exit() == Exit::JobFailed => {
                    if let Some(other) = refused.replace(failure) {
                        self.tell_refusal(&other);
                    }
                }
                Err(failure) => {
                    refused.iter().for_each(|other| self.tell_refusal(other));
                    return Err(failure);
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Says of one of several why it was refused.
    pub(super) fn tell_refusal(&self, failure: &Failure) {
        match self.json {
            true => failure.tell(true),
            false => say(&failure.to_string()),
        }
    }

    /// Says what has become of a task of one of them.
    pub(super) fn tell_task(&self, job: &JobId, view: &TaskView) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct CanceledTask<'a> {
            id: &'a JobId,
            task: TaskIndex,
            state: TaskState,
        }
        let TaskView { task, state, .. } = *view;
        match (self.json, self.jobs.len()) {
            (false, _) => {
                say(&format!("task {task} of job {job} is {state}: {}", view.reason));
                Ok(())
            }
            (true, 1) => print_json(&CanceledTask { id: job, task, state }),
            (true, _) => print_json_line(&CanceledTask { id: job, task, state }),
        }
    }

    /// Says what has become of one of them, in the form that was asked for.
    pub(super) fn tell(&self, job: &JobId, state: &str, words: &str) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct JobEnd<'a> {
            id: &'a JobId,
            state: &'a str,
        }
        match (self.json, self.jobs.len()) {
            (false, _) => {
                say(&format!("job {job} {words}"));
                Ok(())
            }
            (true, 1) => print_json(&JobEnd { id: job, state }),
            (true, _) => print_json_line(&JobEnd { id: job, state }),
        }
    }
}
