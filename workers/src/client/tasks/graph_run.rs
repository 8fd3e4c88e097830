//! A graph of calls that is a job.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::de::DeserializeOwned;
use syncline_rpc::status::JobView;
use syncline_scheduler::{
    ids::{JobId, JobRef},
    tasks::TaskIndex,
};
use tokio::{sync::OnceCell, time::Instant};

use super::TaskError;
use crate::{
    client::{Cancellation, Client, ClientError},
    functions::{GraphNumber, TaskHandle},
    span,
};

/// A job of general tasks, with the handles of the graph that was submitted: those of another graph are
/// refused, whose values could be read as the wrong type. It has a client of its own, and is cheap to clone.
///
/// A program that was started again builds its graph again and submits it: the same graph is the job that is
/// there. One that knows the id alone asks for tasks by their names, with [`Client::get_named`].
#[derive(Clone)]
pub struct GraphRun {
    pub(super) client: Client,
    /// The job that was submitted: of one that takes its name later nothing is read, and nothing is done to
    /// it.
    pub(super) job: JobRef,
    is_new: bool,
    graph: GraphNumber,
    /// The job was there then.
    pub(super) seen: Instant,
    /// When the job was submitted, in milliseconds since the epoch of Unix, once that was asked for: of many
    /// tasks that have failed, the first asks.
    submitted_ms: Arc<OnceCell<Option<u64>>>,
}

impl fmt::Debug for GraphRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphRun")
            .field("id", self.id())
            .field("is_new", &self.is_new)
            .finish_non_exhaustive()
    }
}

impl GraphRun {
    pub(super) fn new(client: Client, job: JobRef, is_new: bool, graph: GraphNumber) -> Self {
        Self { client, job, is_new, graph, seen: Instant::now(), submitted_ms: Arc::default() }
    }

    /// Id of the job, by which everybody else knows it.
    pub fn id(&self) -> &JobId {
        &self.job.id
    }

    /// `false`: the same graph was submitted before, and is this job. Its values, and its errors, are those
    /// of then; [`Client::replace_tasks`] runs it anew.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits until the job is over, as [`Client::wait`] does.
    ///
    /// # Errors
    /// As [`Client::wait`]; E650 if another job has the name by now.
    pub async fn wait(&self, on_change: impl FnMut(&JobView)) -> Result<JobView, ClientError> {
        let mut ended = self.client.wait_for(&self.job, Some(self.seen), on_change).await;
        if let Err(ClientError::JobFailed { reason, .. }) = &mut ended {
            self.tell_of_an_earlier_submission(reason).await;
        }
        ended
    }

    /// Cancels the job, as [`Client::cancel`] does.
    ///
    /// # Errors
    /// As [`Client::cancel`]; E650 if another job has the name by now, E139 if the job is damaged:
    /// [`Client::cancel`] ends it then.
    pub async fn cancel(&self) -> Result<(), ClientError> {
        self.client.cancel_job(&self.job, &Cancellation::default()).await
    }

    /// Cancels one task of the job, as [`Client::cancel_task`] does.
    ///
    /// # Errors
    /// As [`Client::cancel_task`]; E598 for a handle of another graph, E650 if another job has the name by
    /// now.
    pub async fn cancel_task<T>(&self, handle: &TaskHandle<T>, how: &Cancellation) -> Result<(), TaskError> {
        Ok(self.client.cancel_task_of(&self.job, self.task_of(handle)?, how).await?)
    }

    /// What a task of the job gives. `missing_patience`: how long a large value that no shard has is asked for
    /// again.
    pub(super) async fn value_of<T: DeserializeOwned>(
        &self,
        task: TaskIndex,
        missing_patience: Duration,
    ) -> Result<T, TaskError> {
        let mut given = self.client.value_of(&self.job, task, self.seen, missing_patience).await;
        if let Err(TaskError::NoValue { reason, .. }) = &mut given {
            self.tell_of_an_earlier_submission(reason).await;
        }
        given
    }

    /// Adds to why something failed that the job was there before this submission: whoever has mended a
    /// function and runs the program again would take it for a failure of the new one.
    async fn tell_of_an_earlier_submission(&self, reason: &mut String) {
        if self.is_new {
            return;
        }
        let ask =
            || async { Ok::<_, ClientError>(self.client.status_once(&self.job).await?.job.submitted_ms) };
        let submitted_ms = self.submitted_ms.get_or_try_init(ask).await.ok().copied().flatten();
        let age = submitted_ms.map(|submitted_ms| age(submitted_ms, SystemTime::now()));
        let since = age.map(|age| format!(", submitted {age} ago")).unwrap_or_default();
        *reason += &format!("; this is the job that was there{since}: `replace_tasks` runs it anew");
    }

    /// Which task of the job this is.
    ///
    /// # Errors
    /// E598 for a handle of another graph.
    pub(super) fn task_of<T>(&self, handle: &TaskHandle<T>) -> Result<TaskIndex, TaskError> {
        let task = handle.index();
        match handle.graph == self.graph {
            true => Ok(task),
            false => Err(TaskError::OtherGraph { job: self.id().clone(), task }),
        }
    }

    /// The same of several, in their order.
    pub(super) fn tasks_of<T>(&self, handles: &[TaskHandle<T>]) -> Result<Vec<TaskIndex>, TaskError> {
        handles.iter().map(|handle| self.task_of(handle)).collect()
    }
}

/// How long ago a job was submitted, in words, by the clock of this machine.
fn age(submitted_ms: u64, now: SystemTime) -> String {
    let submitted = SystemTime::UNIX_EPOCH + Duration::from_millis(submitted_ms);
    span(now.duration_since(submitted).unwrap_or_default().as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use syncline_rpc::{EngineAddresses, Token};

    use super::*;
    use crate::functions::{Function, TaskGraph};

    const ADD: Function<(u64, u64), u64> = Function::new("add");
    const NAME: Function<(), String> = Function::new("name");

    /// Nothing listens at its address: what travels fails with another code, and later.
    fn run(graph: &TaskGraph) -> GraphRun {
        let engines: EngineAddresses = "127.0.0.1:1".parse().unwrap();
        let client = Client::new(engines, Token::generate());
        GraphRun::new(client, JobRef { id: "sums".parse().unwrap(), nonce: Some(1) }, true, graph.number())
    }

    #[tokio::test]
    async fn a_handle_of_another_graph_is_refused_before_anything_is_asked() {
        let (mut sums, mut names) = (TaskGraph::new("sums"), TaskGraph::new("names"));
        let (sum, name) = (sums.call(ADD, (1, 2)), names.call(NAME, ()));
        let run = run(&sums);
        assert_eq!(run.task_of(&sum).unwrap(), TaskIndex(0));
        let refused = [
            run.get(&name).await.unwrap_err(),
            run.get_all(&[name]).await.unwrap_err(),
            run.as_completed(&[name]).err().unwrap(),
        ];
        for error in refused {
            assert_eq!(error.code(), "E598", "{error}");
        }
    }

    #[tokio::test]
    async fn what_one_clone_has_asked_of_an_earlier_submission_no_other_asks_again() {
        // The client reaches no engine: whoever asks learns nothing.
        let run = GraphRun { is_new: false, ..run(&TaskGraph::new("sums")) };
        let of_another_task = run.clone();
        run.submitted_ms.set(Some(0)).unwrap();
        let mut reason = "no such file".to_owned();
        of_another_task.tell_of_an_earlier_submission(&mut reason).await;
        assert!(reason.starts_with("no such file; this is the job that was there, submitted "), "{reason}");
    }

    #[test]
    fn a_graph_that_is_built_once_more_has_other_handles() {
        let build = || {
            let mut graph = TaskGraph::new("sums");
            let sum = graph.call(ADD, (1, 2));
            (graph, sum)
        };
        let (first, again) = (build(), build());
        assert!(run(&again.0).task_of(&first.1).is_err() && run(&again.0).task_of(&again.1).is_ok());
    }
}
