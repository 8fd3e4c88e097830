//! The cluster of a worker, as its functions see it.

use std::{panic::resume_unwind, sync::LazyLock, thread, time::Duration};

use syncline_rpc::{EngineAddresses, Token};
use tokio::runtime::{Builder, Handle, Runtime};

use super::TaskGraph;
use crate::client::{Client, GraphRun, Patience, TaskError};

/// A client with the engines and the token of the worker, and the runtime in which its calls run.
pub(crate) struct OwnCluster {
    client: Client,
    runtime: Handle,
}

impl OwnCluster {
    pub(crate) fn new(client: Client, runtime: Handle) -> Self {
        Self { client, runtime }
    }

    /// One without an engine, for tests: what is asked of it is refused at once.
    pub(super) fn nowhere() -> Self {
        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
            let threads = Builder::new_multi_thread().worker_threads(1).enable_all().build();
            threads.expect("a process that runs tests may start a thread")
        });
        let engines: EngineAddresses = "127.0.0.1:1".parse().expect("it is an address");
        let client = Client::new(engines, Token::generate()).with_patience(Patience::all(Duration::ZERO));
        Self { client, runtime: RUNTIME.handle().clone() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Submits a graph, and waits for the answer. On a thread of its own, because an async function is in the
    /// runtime already.
    pub(crate) fn submit_tasks(&self, graph: &TaskGraph) -> Result<GraphRun, TaskError> {
        let submit = || self.runtime.block_on(self.client.submit_tasks(graph));
        thread::scope(|threads| threads.spawn(submit).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}
