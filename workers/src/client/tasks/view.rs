//! Tasks as people and programs look at them, and as people hold them up.

use syncline_rpc::within;
use syncline_scheduler::{
    ids::JobId,
    tasks::{TaskIndex, TaskQuery, TaskView},
};

use super::TaskError;
use crate::client::{Client, ClientError, Patience, calls::CALL_TIMEOUT};

impl Client {
    /// The general tasks of a job that a query asks for, in their order.
    pub async fn tasks(&self, job: &JobId, query: &TaskQuery) -> Result<Vec<TaskView>, ClientError> {
        self.tasks_within(self.patience, job, query).await
    }

    async fn tasks_within(
        &self,
        patience: Patience,
        job: &JobId,
        query: &TaskQuery,
    ) -> Result<Vec<TaskView>, ClientError> {
        self.retry_for(patience, |c| {
            let (job, query) = (job.clone(), query.clone());
            async move { c.tasks(within(CALL_TIMEOUT), job, query).await }
        })
        .await
    }

    /// Gives out nothing more of a job; what workers have already goes on, and a training then lets its workers go.
    pub async fn pause(&self, job: &JobId) -> Result<(), ClientError> {
        self.set_paused(job, true).await
    }

    /// Goes on with a job that was paused.
    pub async fn resume(&self, job: &JobId) -> Result<(), ClientError> {
        self.set_paused(job, false).await
    }

    async fn set_paused(&self, job: &JobId, paused: bool) -> Result<(), ClientError> {
        self.retry(|c| {
            let job = job.clone();
            async move { c.pause(within(CALL_TIMEOUT), job, paused).await }
        })
        .await
    }

    /// One general task of a job.
    pub async fn task(&self, job: &JobId, task: TaskIndex) -> Result<TaskView, TaskError> {
        self.task_within(self.patience, job, task).await
    }

    pub(super) async fn task_within(
        &self,
        patience: Patience,
        job: &JobId,
        task: TaskIndex,
    ) -> Result<TaskView, TaskError> {
        let query = TaskQuery { first: task, limit: 1, ..TaskQuery::default() };
        let found =
            self.tasks_within(patience, job, &query).await?.into_iter().find(|view| view.task == task);
        found.ok_or_else(|| TaskError::Unknown { job: job.clone(), task: task.to_string() })
    }
}
