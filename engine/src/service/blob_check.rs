//! Whether the blobs that a job names are there.

use std::{collections::BTreeSet, time::Duration};

use syncline_rpc::{EngineFault, within};
use syncline_scheduler::{
    ids::ContentDigest,
    tasks::{InvalidTraining, NewTask, TaskClass, Work},
};

use super::{context::ServiceContext, shard_calls::describe};

/// Limit of asking one shard which blobs it keeps.
const BLOB_CALL_TIMEOUT: Duration = Duration::from_secs(5);

impl ServiceContext {
    /// Refuses a job that names a blob which no shard keeps.
    pub(super) async fn check_blobs(&self, digests: Vec<ContentDigest>) -> Result<(), EngineFault> {
        let mut found = vec![false; digests.len()];
        for shard in self.shards.indices() {
            let digests = digests.clone();
            let call = self.shards.call_if_present(shard, |c| async move {
                c.has_blobs(within(BLOB_CALL_TIMEOUT), digests).await
            });
            let answer = call.await.ok_or_else(|| self.shards.missing_fault())?;
            let here = answer.map_err(|e| EngineFault::SilentShard { shard, cause: describe(&e) })?;
            found.iter_mut().zip(here).for_each(|(f, h)| *f |= h);
        }
        match found.iter().position(|f| !f) {
            Some(at) => Err(EngineFault::MissingBlob { digest: digests[at] }),
            None => Ok(()),
        }
    }

    /// The same of a graph, or of a part of one. Without any, no shard needs to be there.
    pub(super) async fn check_named_blobs(&self, digests: Vec<ContentDigest>) -> Result<(), EngineFault> {
        if digests.is_empty() {
            return Ok(());
        }
        self.all_shards()?;
        self.check_blobs(digests).await
    }

    /// Looks for the blobs that trainings need, and for the large values among the arguments of general
    /// tasks.
    pub(super) async fn check_graph(
        &self,
        classes: &[TaskClass],
        tasks: &[NewTask],
    ) -> Result<(), EngineFault> {
        let mut digests = large_values(tasks);
        for class in classes {
            if let Work::Train(training) = &class.work {
                let invalid =
                    |e: InvalidTraining| EngineFault::InvalidJob { code: e.code(), reason: e.to_string() };
                digests.extend(training.blobs().map_err(invalid)?);
            }
        }
        self.check_named_blobs(digests).await
    }
}

/// The blobs that arguments name, each once.
fn large_values(tasks: &[NewTask]) -> Vec<ContentDigest> {
    let named: BTreeSet<ContentDigest> = tasks.iter().flat_map(NewTask::blobs).collect();
    named.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use syncline_rpc::ShardResponse;
    use syncline_scheduler::{
        ids::ShardIndex,
        tasks::{Arg, BlobValue, ClassIndex, TaskIndex, TaskRef},
    };

    use super::*;
    use crate::service::fake_shard::{EPOCH, Noted, leading_engine, start};

    #[tokio::test]
    async fn a_shard_whose_connection_breaks_is_not_said_to_be_missing() {
        let engine = leading_engine().await;
        let context = &engine.context;
        let check = || context.check_blobs(vec![ContentDigest::from_bytes([1; 32])]);
        assert_eq!(check().await, Err(EngineFault::MissingShards { present: 0, expected: 1 }));
        let shard = start(u32::MAX, |_| ShardResponse::HasBlobs(vec![true])).await;
        context.shards.announce(shard, EPOCH, &Noted).await;
        let silent = check().await.unwrap_err();
        assert!(matches!(silent, EngineFault::SilentShard { shard: ShardIndex(0), .. }), "{silent}");
    }

    #[test]
    fn a_blob_that_many_tasks_name_is_asked_for_once() {
        let [a, b] = [0xa, 0xb].map(|byte| ContentDigest::from_bytes([byte; 32]));
        let blob = |digest| Arg::Blob(BlobValue { digest, bytes: 1 });
        let task = |args| NewTask { class: ClassIndex(0), args, after: Vec::new(), name: None };
        let other = vec![Arg::Value(vec![1].into()), Arg::Output(TaskRef::Task(TaskIndex(0)))];
        let tasks = [task(other), task(vec![blob(b), blob(a)]), task(vec![blob(b)])];
        assert_eq!(large_values(&tasks), [a, b]);
        assert!(large_values(&tasks[..1]).is_empty());
    }
}
