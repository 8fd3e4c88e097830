//! A graph in several parts that takes the place of a job. The old job goes with the first part: what the engine
//! refuses of a later one, or a shard does not take, is to be known before.

use std::{collections::BTreeSet, convert::Infallible};

use syncline_rpc::{EngineFault, within};
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
    client::{Client, ClientError, calls::CALL_TIMEOUT},
    functions::move_large_constants,
};

/// Most blobs that one call asks for: a shard looks at a file for each of them.
const BLOBS_PER_CALL: usize = 10_000;

impl Client {
    /// Whether there is a job of this name that is over, which another one may replace.
    pub(super) async fn is_replaceable(&self, id: &JobId) -> Result<bool, ClientError> {
        match self.is_over(&JobRef::from(id.clone())).await {
            Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => Ok(false),
            is_over => is_over,
        }
    }

    /// The tasks of a graph, all of them checked, all their large constants uploaded, and all of these found
    /// on the shards after the last one came: that may take long. `graph`: without tasks.
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
        let tasks = self.with_blobs(tasks).await?;
        let blobs: BTreeSet<ContentDigest> = tasks.iter().flat_map(NewTask::blobs).collect();
        for asked in Vec::from_iter(blobs).chunks(BLOBS_PER_CALL) {
            self.retry(|c| {
                let asked = asked.to_vec();
                async move { c.check_blobs(within(CALL_TIMEOUT), asked).await }
            })
            .await?;
        }
        Ok(tasks)
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use syncline_rpc::{ClientServiceRequest as Request, ClientServiceResponse as Response};
    use syncline_scheduler::tasks::{Arg, ClassIndex, FunctionId, GraphDigest, TaskClass};

    use super::*;
    use crate::client::fake_engine;

    #[tokio::test]
    async fn the_blobs_of_all_parts_are_looked_for_before_any_part_is_sent_each_once() {
        let digest = |n: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            ContentDigest::from_bytes(bytes)
        };
        let named = BLOBS_PER_CALL as u32 + 1;
        let task = |n: u32| {
            let blob = |n| Arg::Blob(BlobValue { digest: digest(n), bytes: 1 });
            NewTask { class: ClassIndex(0), args: vec![blob(0), blob(n)], after: Vec::new(), name: None }
        };
        let missing = digest(named - 1);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        let client = fake_engine::start(move |request| match request {
            Request::CheckBlobs { digests } => {
                let lacks = digests.contains(&missing);
                heard.lock().unwrap().push(digests.len());
                Some(Response::CheckBlobs(match lacks {
                    true => Err(EngineFault::MissingBlob { digest: missing }),
                    false => Ok(()),
                }))
            }
            _ => None,
        });
        let classes = vec![TaskClass::call(FunctionId {
            name: "f".parse().unwrap(),
            signature: 1,
            types: String::new(),
        })];
        let (id, digest) = ("sums".parse().unwrap(), GraphDigest::default());
        let graph = GraphSpec { id, digest, classes, tasks: Vec::new(), complete: false };
        let refused = client.await.ready_to_replace(graph, (0..named).map(task).collect()).await.unwrap_err();
        assert_eq!(refused.code(), "E132", "{refused}");
        assert_eq!(*asked.lock().unwrap(), [BLOBS_PER_CALL, 1]);
    }
}
