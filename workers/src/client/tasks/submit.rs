//! A graph of calls becomes a job.

use std::borrow::Cow;

use syncline_rpc::{EngineFault, within};
use syncline_scheduler::{
    core::IfTaken,
    fault_code::FaultCode,
    ids::{JobId, JobRef},
    tasks::{GraphReceipt, GraphSpec, NewTask, TaskIndex},
};

use super::{
    GraphRun, TaskError,
    constants::has_large_constants,
    parts::{part, parts},
};
use crate::{
    client::{Client, ClientError, calls::CALL_TIMEOUT},
    functions::TaskGraph,
};

/// Code of a part behind which others are missing.
const PARTS_MISSING: FaultCode = FaultCode::new("E050");
/// How often a client begins again because parts that were acknowledged are gone.
const SENDS_AFTER_A_LOSS: u32 = 8;

/// Whether the engine has fewer parts of a graph than it had acknowledged.
fn has_lost_parts(error: &TaskError) -> bool {
    match error {
        TaskError::Engine(ClientError::Refused(EngineFault::UnknownJob { .. })) => true,
        TaskError::Engine(ClientError::Refused(fault)) => fault.code() == PARTS_MISSING,
        _ => false,
    }
}

/// What a submission is to the job that has its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submission {
    /// The same, if it has the same graph.
    Same,
    /// Another one, in its place if it is over.
    Replacing,
    /// Another one beside it: nobody submits it again under the same id.
    New,
}

impl Client {
    /// Uploads large constants and submits. Returns when the whole graph is committed in Redis and the job
    /// has begun.
    ///
    /// The same graph under the same id is the same job: whoever did not hear the answer asks again, as the
    /// same client or as another one, and gets the job that is there, even when it is over: one that has
    /// failed is run once more by [`replace_tasks`](Self::replace_tasks). What a client that died has not
    /// sent is sent then: a large graph goes in parts. While the engine or a shard is away each part is
    /// sent again, as long as the client is [patient](crate::client::Patience).
    ///
    /// # Errors
    /// E340 for a call that cannot be made, E001 for an id that is no name, E042 to E056 for a graph that
    /// makes no sense, E130 if the id is that of another job: nothing is stored of a graph that is
    /// refused. E410 if a shard is away; E300 if no engine is reached, E136 if none leads: parts of a large
    /// graph that were sent until then are kept for a day, and the same graph submitted again goes on behind
    /// them.
    pub async fn submit_tasks(&self, graph: &TaskGraph) -> Result<GraphRun, TaskError> {
        self.send_graph(graph, graph.id().parse()?, Submission::Same).await
    }

    /// Submits a graph as [`submit_tasks`](Self::submit_tasks); a job of the same id that is over makes room,
    /// with all that it gave, also one of the same graph. It stays where the graph is refused. A large graph
    /// of which parts were sent already, when an engine or a shard went away, has taken its place by then,
    /// and goes on where it is submitted again.
    ///
    /// # Errors
    /// As [`submit_tasks`](Self::submit_tasks); E140 if the job of that id goes on.
    pub async fn replace_tasks(&self, graph: &TaskGraph) -> Result<GraphRun, TaskError> {
        let id: JobId = graph.id().parse()?;
        let is_whole = parts(graph.tasks()?.1, 0).len() <= 1;
        // Where there is nothing to replace, nothing has to be known before: what was sent is not sent again.
        if !is_whole && !self.is_replaceable(&id).await? {
            match self.send_graph(graph, id.clone(), Submission::Same).await {
                // That one may be over by now.
                Err(TaskError::Engine(ClientError::Refused(EngineFault::DuplicateJob { .. }))) => {}
                sent => return sent,
            }
        }
        self.send_graph(graph, id, Submission::Replacing).await
    }

    /// Submits a graph as [`submit_tasks`](Self::submit_tasks), as a new job in any case: under its own id,
    /// or if that is taken under the first one that is free of `sums-2`, `sums-3` and so on.
    /// [`GraphRun::id`] says which.
    ///
    /// # Errors
    /// As [`submit_tasks`](Self::submit_tasks), but for E130.
    pub async fn submit_new_tasks(&self, graph: &TaskGraph) -> Result<GraphRun, TaskError> {
        let wanted: JobId = graph.id().parse()?;
        loop {
            match self.send_graph(graph, self.free_id(&wanted).await?, Submission::New).await {
                // Somebody else was faster.
                Err(TaskError::Engine(ClientError::Refused(EngineFault::DuplicateJob { .. }))) => {}
                Ok(run) if !run.is_new() => {}
                submitted => return submitted,
            }
        }
    }

    async fn send_graph(
        &self,
        graph: &TaskGraph,
        id: JobId,
        submission: Submission,
    ) -> Result<GraphRun, TaskError> {
        let (classes, tasks) = graph.tasks()?;
        let (classes, digest) = (classes.to_vec(), graph.digest());
        let parts = parts(tasks, 0);
        let if_taken = match submission {
            Submission::Same | Submission::New => IfTaken::Refuse,
            Submission::Replacing => IfTaken::Replace,
        };
        let mut tasks = Cow::Borrowed(tasks);
        if if_taken == IfTaken::Replace && parts.len() > 1 {
            let (id, classes, none) = (id.clone(), classes.clone(), Vec::new());
            let spec = GraphSpec { id, digest, classes, tasks: none, complete: false };
            tasks = Cow::Owned(self.ready_to_replace(spec, tasks.into_owned()).await?);
        }
        let mut first = part(&tasks, parts.first().cloned().unwrap_or_default());
        // Of a job that is there nothing large is sent before the engine says that it is another one. One
        // that is replaced goes when the engine is told, and everything was uploaded before.
        let large = first.iter().position(has_large_constants).filter(|_| if_taken == IfTaken::Refuse);
        let asks_first = large.is_some() && self.is_known(&id).await?;
        if asks_first {
            first.truncate(large.unwrap_or_default());
        }
        let first = self.with_blobs(first).await?;
        let complete = parts.len() <= 1 && !asks_first;
        let spec = GraphSpec { id: id.clone(), digest, classes, tasks: first, complete };
        // Drawn, not made of the digest: what workers report of a job that was deleted must not count for the
        // same graph when it is submitted once more.
        let nonce: u32 = rand::random();
        let mut there = self.send_first(spec.clone(), nonce, if_taken).await?;
        let mut times_left = SENDS_AFTER_A_LOSS;
        while !there.is_closed {
            match self.send_rest(&id, there, &tasks).await {
                Ok(()) => break,
                // Redis has gone back by a moment, and the engine that knew better is gone as well.
                Err(error) if times_left > 0 && has_lost_parts(&error) => {
                    times_left -= 1;
                    there = self.send_first(spec.clone(), nonce, if_taken).await?;
                }
                Err(error) => {
                    // Whoever has begun a job clears it away; another client may still be sending it
                    // otherwise. After what may pass the same graph goes on there when it comes again.
                    let comes_again = error.may_pass() && submission != Submission::New;
                    if there.nonce == nonce && !comes_again {
                        self.abandon(&id, nonce).await;
                    }
                    return Err(error);
                }
            }
        }
        let job = JobRef { id, nonce: Some(there.nonce) };
        Ok(GraphRun::new(self.clone(), job, there.nonce == nonce, graph.number()))
    }

    async fn is_known(&self, id: &JobId) -> Result<bool, ClientError> {
        match self.record(id).await {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn send_first(
        &self,
        spec: GraphSpec,
        nonce: u32,
        if_taken: IfTaken,
    ) -> Result<GraphReceipt, ClientError> {
        self.retry(|c| {
            let spec = spec.clone();
            async move { c.submit_graph(within(CALL_TIMEOUT), spec, nonce, if_taken).await }
        })
        .await
    }

    async fn send_rest(&self, id: &JobId, there: GraphReceipt, tasks: &[NewTask]) -> Result<(), TaskError> {
        let GraphReceipt { nonce, tasks: first, .. } = there;
        for range in parts(tasks, first as usize) {
            let first = TaskIndex(range.start as u32);
            let added = self.with_blobs(part(tasks, range)).await?;
            self.retry(|c| {
                let (id, added) = (id.clone(), added.clone());
                async move { c.extend_graph(within(CALL_TIMEOUT), id, nonce, first, added).await }
            })
            .await?;
        }
        let count = tasks.len() as u32;
        self.retry(|c| {
            let id = id.clone();
            async move { c.start_graph(within(CALL_TIMEOUT), id, nonce, count).await }
        })
        .await?;
        Ok(())
    }

    /// Frees the name of a job of which a part was sent. What fails here is told by the error that led here.
    async fn abandon(&self, id: &JobId, nonce: u32) {
        let abandoned = self.retry(|c| {
            let id = id.clone();
            async move { c.abandon_graph(within(CALL_TIMEOUT), id, nonce).await }
        });
        let _ = abandoned.await;
    }
}
