//! A graph in several parts that takes the place of a job. The old job goes with the first part: what the engine
//! refuses of a later one, or a shard does not take, is to be known before.

use std::convert::Infallible;

use syncline_rpc::EngineFault;
use syncline_scheduler::{
    core::{GraphCheck, InvalidGraph},
    ids::{ContentDigest, JobId, JobRef},
    tasks::{BlobValue, GraphSpec, NewTask},
};

use super::{
    TaskError,
    parts::{part, parts},
};
use crate::{
    blocking,
    client::{Client, ClientError},
    functions::move_large_constants,
};

impl Client {
    /// Whether there is a job of this name that is over, which another one may replace.
    pub(super) async fn is_replaceable(&self, id: &JobId) -> Result<bool, ClientError> {
        match self.is_over(&JobRef::from(id.clone())).await {
            Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => Ok(false),
            is_over => is_over,
        }
    }

    /// The tasks of a graph, all of them checked and all their large constants uploaded. `graph`: without
    /// tasks.
    pub(super) async fn ready_to_replace(
        &self,
        graph: GraphSpec,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<NewTask>, TaskError> {
        let (tasks, checked) = blocking(move || {
            let checked = check(&graph, &tasks);
            (tasks, checked)
        })
        .await;
        checked.map_err(|invalid| {
            let (code, reason) = (invalid.code(), invalid.to_string());
            ClientError::from(EngineFault::InvalidJob { code, reason })
        })?;
        self.with_blobs(tasks).await
    }
}

/// Whether the engine would take all parts of a graph.
fn check(graph: &GraphSpec, tasks: &[NewTask]) -> Result<(), InvalidGraph> {
    let mut checked: Option<GraphCheck> = None;
    for range in parts(tasks, 0) {
        let mut tasks = part(tasks, range);
        // They count as what they will be: any digest will do.
        let Ok(()) = move_large_constants(&mut tasks, |_, value| {
            let digest = ContentDigest::LOWEST;
            Ok::<_, Infallible>(BlobValue { digest, bytes: value.len() as u64 })
        });
        match &mut checked {
            Some(checked) => checked.extend(&tasks)?,
            None => checked = Some(GraphCheck::of(&GraphSpec { tasks, ..graph.clone() })?),
        }
    }
    Ok(())
}
