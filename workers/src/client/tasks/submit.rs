//! A graph of calls becomes a job.

use std::time::Duration;

use syncline_engine::rpc::within;
use syncline_ps::client::Addresses;
use syncline_scheduler::{
    ids::JobId,
    tasks::{Arg, GraphSpec, MAX_INLINE_BYTES, NewTask, TaskClass, TaskIndex},
};

use super::{
    TaskError,
    parts::{part, parts},
};
use crate::{
    blocking,
    client::{Client, ClientError, calls::CALL_TIMEOUT},
    functions::{ShardValues, TaskGraph, move_large_constants},
};

/// How long each part of a graph is sent again while the engine is away.
const SEND_LIMIT: Duration = Duration::from_secs(60);

impl Client {
    /// Uploads large constants and submits. Returns when the whole graph is committed in Redis and the job has begun.
    ///
    /// A large graph goes in parts. While the engine is away each is sent again for a minute, which makes no second job. A
    /// client that dies meanwhile leaves a job that never begins: cancel it.
    ///
    /// # Errors
    /// Nothing is stored of a graph that is refused, as one with the name of another job is (E130).
    pub async fn submit_tasks(&self, graph: &TaskGraph) -> Result<JobId, TaskError> {
        self.send_graph(graph, false).await
    }

    /// The same; a job of the same id that is over makes room, with all that it gave.
    pub async fn replace_tasks(&self, graph: &TaskGraph) -> Result<JobId, TaskError> {
        self.send_graph(graph, true).await
    }

    async fn send_graph(&self, graph: &TaskGraph, replace: bool) -> Result<JobId, TaskError> {
        let (classes, tasks) = graph.tasks()?;
        let id: JobId = graph.id().parse()?;
        let nonce: u32 = rand::random();
        let parts = parts(tasks);
        let first = self.with_blobs(part(tasks, parts.first().cloned().unwrap_or_default())).await?;
        self.send_first(&id, nonce, classes, first, parts.len() <= 1, replace).await?;
        if parts.len() > 1
            && let Err(error) = self.send_rest(&id, nonce, tasks, &parts[1..]).await
        {
            self.forget_unfinished(&id).await;
            return Err(error);
        }
        Ok(id)
    }

    async fn send_first(
        &self,
        id: &JobId,
        nonce: u32,
        classes: &[TaskClass],
        tasks: Vec<NewTask>,
        complete: bool,
        replace: bool,
    ) -> Result<(), ClientError> {
        let spec = GraphSpec { id: id.clone(), classes: classes.to_vec(), tasks, complete };
        self.retry_while(SEND_LIMIT, ClientError::is_passing, |c| {
            let spec = spec.clone();
            async move { c.submit_graph(within(CALL_TIMEOUT), spec, nonce, replace).await }
        })
        .await
    }

    async fn send_rest(
        &self,
        id: &JobId,
        nonce: u32,
        tasks: &[NewTask],
        parts: &[std::ops::Range<usize>],
    ) -> Result<(), TaskError> {
        for range in parts {
            let first = TaskIndex(range.start as u32);
            let added = self.with_blobs(part(tasks, range.clone())).await?;
            self.retry_while(SEND_LIMIT, ClientError::is_passing, |c| {
                let (id, added) = (id.clone(), added.clone());
                async move { c.extend_graph(within(CALL_TIMEOUT), id, nonce, first, added).await }
            })
            .await?;
        }
        let count = tasks.len() as u32;
        self.retry_while(SEND_LIMIT, ClientError::is_passing, |c| {
            let id = id.clone();
            async move { c.start_graph(within(CALL_TIMEOUT), id, nonce, count).await }
        })
        .await?;
        Ok(())
    }

    /// The same tasks, with blobs in the place of large constants.
    async fn with_blobs(&self, mut tasks: Vec<NewTask>) -> Result<Vec<NewTask>, TaskError> {
        let large = |arg: &Arg| matches!(arg, Arg::Value(value) if value.len() > MAX_INLINE_BYTES);
        if !tasks.iter().any(|task| task.args.iter().any(large)) {
            return Ok(tasks);
        }
        let store = self.values().await?;
        Ok(blocking(move || move_large_constants(&store, &mut tasks).map(|()| tasks)).await?)
    }

    /// Where large values lie.
    pub(in crate::client) async fn values(&self) -> Result<ShardValues, ClientError> {
        Ok(ShardValues::new(self.token.clone(), Addresses::from(&self.shards().await?[..])))
    }

    /// Frees the name of a job of which a part was refused. What fails here is told by the error that led here.
    async fn forget_unfinished(&self, id: &JobId) {
        if self.cancel(id).await.is_ok() {
            let _ = self.delete(id).await;
        }
    }
}
