//! The cluster of a worker, as its functions see it.

use std::{panic::resume_unwind, thread};

use tokio::runtime::Handle;

use super::TaskGraph;
use crate::client::{Client, GraphRun, TaskError};

/// A client with the engines and the token of the worker, and the runtime in which its calls run.
pub(crate) struct OwnCluster {
    client: Client,
    runtime: Handle,
}

impl OwnCluster {
    pub(crate) fn new(client: Client, runtime: Handle) -> Self {
        Self { client, runtime }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Submits a graph, and waits for the answer. On a thread of its own, because an async function is in the runtime already.
    pub(crate) fn submit_tasks(&self, graph: &TaskGraph) -> Result<GraphRun, TaskError> {
        let submit = || self.runtime.block_on(self.client.submit_tasks(graph));
        thread::scope(|threads| threads.spawn(submit).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}
