//! Removes blobs that no job names any more: now and then by itself, and when somebody asks.

use std::{collections::BTreeSet, time::Duration};

use syncline_scheduler::core::Job;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{calls::store_fault, effects::Hands};
use crate::{
    rpc::{Collected, EngineFault, within},
    store::RedisStore,
};

/// A blob that came or was asked for within this time stays: whoever submits a job uploads first.
const YOUNG: Duration = Duration::from_secs(3_600);
const EVERY: Duration = Duration::from_secs(6 * 3_600);
const CALL: Duration = Duration::from_secs(60);

/// Collects for ever, first when the lead is that old.
pub(super) async fn keep_collecting(store: RedisStore, hands: Hands) {
    loop {
        sleep(EVERY).await;
        match collect(&store, &hands, YOUNG).await {
            Ok(Collected { blobs: 0, .. }) => {}
            Ok(Collected { blobs, bytes }) => info!(blobs, bytes, "removed blobs that no job names"),
            Err(error) => warn!(%error, "cannot remove blobs that no job names"),
        }
    }
}

/// Removes from every shard the blobs that no job names and that are older than this.
pub(super) async fn collect(
    store: &RedisStore,
    hands: &Hands,
    older_than: Duration,
) -> Result<Collected, EngineFault> {
    let named: Vec<String> = named(store).await?.into_iter().collect();
    let mut all = Collected::default();
    for shard in hands.shards.indices() {
        let (keep, epoch) = (named.clone(), hands.epoch);
        let call = hands.shards.try_call(shard, |c| async move {
            c.collect(within(CALL), epoch, keep, older_than.as_secs()).await
        });
        let here = call
            .await
            .map_err(|_| hands.shards.missing())?
            .map_err(|fault| EngineFault::Shard { shard, cause: fault.to_string() })?;
        all.blobs += here.blobs;
        all.bytes += here.bytes;
    }
    Ok(all)
}

/// Every blob that some job names. A job that cannot be read may name any: then nothing is removed.
async fn named(store: &RedisStore) -> Result<BTreeSet<String>, EngineFault> {
    let mut named = BTreeSet::new();
    for id in store.jobs().await.map_err(store_fault)? {
        let stored = store.read(&id).await.map_err(store_fault)?;
        if stored.spec.is_empty() {
            // Listed without keys: it has expired, or is about to be written and its blobs are young.
            continue;
        }
        let job = Job::load(&stored)
            .map_err(|e| EngineFault::Unreadable { job: id.clone(), cause: e.to_string() })?;
        let blobs = job.spec().train().map(|(_, train)| train.model.blobs().map(str::to_owned));
        named.extend(blobs.into_iter().flatten());
        // The shards keep a snapshot as a blob, too: for evaluation and for whoever exports the model.
        named.extend(job.snapshot().map(|file| file.digest.clone()));
    }
    Ok(named)
}
