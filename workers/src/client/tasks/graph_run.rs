//! A graph of calls that is a job.

use std::fmt;

use syncline_rpc::status::JobView;
use syncline_scheduler::{ids::JobId, tasks::TaskIndex};

use super::TaskError;
use crate::{
    client::{Client, ClientError},
    functions::{GraphNumber, TaskHandle},
};

/// A job of general tasks, with the handles of the graph that was submitted: those of another graph are refused, whose values could be
/// read as the wrong type. It has a client of its own, and is cheap to clone.
///
/// A program that was started again builds its graph again and submits it: the same graph is the job that is there. One that knows the
/// id alone asks for tasks by their names, with [`Client::get_named`].
#[derive(Clone)]
pub struct GraphRun {
    pub(super) client: Client,
    id: JobId,
    is_new: bool,
    graph: GraphNumber,
}

impl fmt::Debug for GraphRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphRun").field("id", &self.id).field("is_new", &self.is_new).finish_non_exhaustive()
    }
}

impl GraphRun {
    pub(super) fn new(client: Client, id: JobId, is_new: bool, graph: GraphNumber) -> Self {
        Self { client, id, is_new, graph }
    }

    /// Id of the job, by which everybody else knows it.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// `false`: the same graph was submitted before, and is this job.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits until the job is over, as [`Client::wait`] does.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn wait(&self, on_change: impl FnMut(&JobView)) -> Result<JobView, ClientError> {
        self.client.wait(&self.id, on_change).await
    }

    /// Cancels the job, as [`Client::cancel`] does.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn cancel(&self) -> Result<(), ClientError> {
        self.client.cancel(&self.id).await
    }

    /// Which task of the job this is.
    ///
    /// # Errors
    /// E598 for a handle of another graph.
    pub(super) fn task_of<T>(&self, handle: &TaskHandle<T>) -> Result<TaskIndex, TaskError> {
        let task = handle.index();
        match handle.graph == self.graph {
            true => Ok(task),
            false => Err(TaskError::OtherGraph { job: self.id.clone(), task }),
        }
    }

    /// The same of several, in their order.
    pub(super) fn tasks_of<T>(&self, handles: &[TaskHandle<T>]) -> Result<Vec<TaskIndex>, TaskError> {
        handles.iter().map(|handle| self.task_of(handle)).collect()
    }
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
        GraphRun::new(client, "sums".parse().unwrap(), true, graph.number())
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
