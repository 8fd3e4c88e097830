//! Finds and removes checkpoints of jobs that nobody knows any more. Never unasked: Redis may be who has forgotten.

use std::{collections::BTreeSet, time::Duration};

use syncline_rpc::{EngineFault, Forgotten, ShardClient, within};
use syncline_scheduler::{core::Core, ids::JobId};
use tracing::warn;

use super::{context::store_fault, lead::Lead};
use crate::store::{Expiry, RedisStore};

/// Folders of many gigabytes may be removed.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What checkpoints all shards have of jobs that nobody knows, and in which nothing was written for so long; with `remove` they are
/// gone then.
pub(super) async fn collect_checkpoints(
    store: &RedisStore,
    lead: &Lead,
    older_than: Duration,
    remove: bool,
) -> Result<Forgotten, EngineFault> {
    let known: Vec<JobId> = known_jobs(store, lead).await?.into_iter().collect();
    let (epoch, older_than_s) = (lead.epoch, older_than.as_secs());
    let collect = |known: Vec<JobId>| {
        move |c: ShardClient| async move {
            c.collect_checkpoints(within(CALL_TIMEOUT), epoch, known, older_than_s, remove).await
        }
    };
    let mut all = Forgotten::default();
    for shard in lead.shards.indices() {
        let here = lead.shards.ask_once(shard, collect(known.clone())).await?;
        all.folders += here.folders;
        all.bytes += here.bytes;
        // What the process has that follows is there twice and is not counted.
        match lead.shards.call_standby(shard, collect(known.clone())).await {
            None | Some(Ok(Ok(_))) => {}
            failed => warn!(%shard, ?failed, "the standby of the shard keeps checkpoints that nobody knows"),
        }
    }
    Ok(all)
}

/// Every job that goes on, is damaged, or has keys in Redis.
async fn known_jobs(store: &RedisStore, lead: &Lead) -> Result<BTreeSet<JobId>, EngineFault> {
    let (damaged, other): (Vec<_>, Vec<_>) =
        lead.jobs.listed().into_iter().partition(|job| lead.jobs.damaged(job).is_some());
    let live = move |core: &Core| other.into_iter().filter(|job| core.is_live(job)).collect();
    let mut known: BTreeSet<JobId> = lead.queue.query(live).await?;
    known.extend(damaged);
    let stored = store.jobs().await.map_err(store_fault)?;
    let expiries = store.expiries(&stored).await.map_err(store_fault)?;
    known.extend(
        stored.into_iter().zip(expiries).filter(|(_, expiry)| *expiry != Expiry::Gone).map(|(job, _)| job),
    );
    Ok(known)
}
