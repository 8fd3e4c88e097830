//! Tasks as people and programs look at them, and as people hold them up.

use syncline_rpc::within;
use syncline_scheduler::{
    ids::{JobId, JobRef, NodeName},
    tasks::{TaskIndex, TaskQuery, TaskView},
};

use super::TaskError;
use crate::client::{Client, ClientError, Patience, calls::CALL_TIMEOUT};

impl Client {
    /// The general tasks of a job that a query asks for, in their order.
    ///
    /// # Errors
    /// E131 if there is no such job, E138 if it is no graph of tasks; E300 if no engine is reached, E136 if
    /// none leads.
    pub async fn tasks(&self, job: &JobId, query: &TaskQuery) -> Result<Vec<TaskView>, ClientError> {
        self.tasks_within(self.patience, &job.clone().into(), query).await
    }

    /// The same of the job of one submission.
    ///
    /// # Errors
    /// As [`tasks`](Self::tasks), E650 if another job has the name by now.
    #[doc(hidden)]
    pub async fn tasks_of(&self, job: &JobRef, query: &TaskQuery) -> Result<Vec<TaskView>, ClientError> {
        self.tasks_within(self.patience, job, query).await
    }

    async fn tasks_within(
        &self,
        patience: Patience,
        job: &JobRef,
        query: &TaskQuery,
    ) -> Result<Vec<TaskView>, ClientError> {
        self.retry_for(patience, |c| {
            let (job, query) = (job.clone(), query.clone());
            async move { c.tasks(within(CALL_TIMEOUT), job, query).await }
        })
        .await
    }

    /// Gives out nothing more of a job; what workers have already goes on, and a training then lets its
    /// workers go.
    ///
    /// # Errors
    /// E131 if there is no such job, E137 if it is over; E300 if no engine is reached, E136 if none leads.
    pub async fn pause(&self, job: &JobId) -> Result<(), ClientError> {
        self.set_paused(job, true).await
    }

    /// Goes on with a job that was paused.
    ///
    /// # Errors
    /// E131 if there is no such job, E137 if it is over; E300 if no engine is reached, E136 if none leads.
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
    ///
    /// # Errors
    /// E344 if the job has no such task, and what [`tasks`](Self::tasks) lists.
    pub async fn task(&self, job: &JobId, task: TaskIndex) -> Result<TaskView, TaskError> {
        self.task_within(self.patience, &job.clone().into(), task).await
    }

    /// The general task of a job that has this name.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    pub async fn task_named(&self, job: &JobId, name: &NodeName) -> Result<TaskView, TaskError> {
        let query = TaskQuery { name: Some(name.clone()), limit: 1, ..TaskQuery::default() };
        let found = self.tasks(job, &query).await?.pop();
        found.ok_or_else(|| TaskError::Unknown { job: job.clone(), task: name.to_string() })
    }

    /// One general task of the job of one submission.
    ///
    /// # Errors
    /// As [`task`](Self::task), E650 if another job has the name by now.
    #[doc(hidden)]
    pub async fn task_of(&self, job: &JobRef, task: TaskIndex) -> Result<TaskView, TaskError> {
        self.task_within(self.patience, job, task).await
    }

    pub(super) async fn task_within(
        &self,
        patience: Patience,
        job: &JobRef,
        task: TaskIndex,
    ) -> Result<TaskView, TaskError> {
        let query = TaskQuery { first: task, limit: 1, ..TaskQuery::default() };
        let found =
            self.tasks_within(patience, job, &query).await?.into_iter().find(|view| view.task == task);
        found.ok_or_else(|| TaskError::Unknown { job: job.id.clone(), task: task.to_string() })
    }
}
