//! Finds and removes checkpoints and snapshots of jobs that nobody knows any more. Never unasked: Redis may
//! be who has forgotten, and a snapshot is a result that somebody wanted.

use std::{collections::BTreeSet, time::Duration};

use syncline_rpc::{EngineFault, FolderGc, Forgotten, JobFolders, KnownJobs, ShardClient, within};
use syncline_scheduler::{core::Core, ids::JobId};

use super::{context::store_fault, lead::Lead};
use crate::store::{Expiry, RedisStore};

/// Folders of many gigabytes may be removed.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What folders of this kind all shards have of jobs that nobody knows, and in which nothing was written for
/// so long.
pub(super) async fn collect_folders(
    store: &RedisStore,
    lead: &Lead,
    what: JobFolders,
    older_than: Duration,
    gc: FolderGc,
) -> Result<Forgotten, EngineFault> {
    let known = known_jobs(store, lead).await?;
    let (epoch, older_than_s) = (lead.epoch, older_than.as_secs());
    let mut all = Forgotten::default();
    for shard in lead.shards.indices() {
        let collect = |c: ShardClient| {
            let known = known.clone();
            async move { c.collect_folders(within(CALL_TIMEOUT), epoch, what, known, older_than_s, gc).await }
        };
        let here = lead.shards.ask_both(shard, "folders that nobody knows", collect).await?;
        all.folders += here.folders;
        all.bytes += here.bytes;
    }
    Ok(all)
}

/// Every job that goes on, is damaged, or has keys in Redis, and which of its name it is, as far as the loop
/// that decides has it.
async fn known_jobs(store: &RedisStore, lead: &Lead) -> Result<KnownJobs, EngineFault> {
    let names = known_names(store, lead).await?;
    let nonce = |core: &Core, job: &JobId| core.job(job).map(|job| job.generation().nonce());
    let known =
        lead.queue.query(move |core| names.into_iter().map(|job| (job.clone(), nonce(core, &job))).collect());
    Ok(KnownJobs(known.await?))
}

async fn known_names(store: &RedisStore, lead: &Lead) -> Result<BTreeSet<JobId>, EngineFault> {
    let mut known = lead.live_jobs().await?;
    known.extend(lead.jobs.listed().into_iter().filter(|job| lead.jobs.damaged(job).is_some()));
    let stored = store.jobs().await.map_err(store_fault)?;
    let expiries = store.expiries(&stored).await.map_err(store_fault)?;
    let kept = stored.into_iter().zip(expiries).filter(|(_, expiry)| *expiry != Expiry::Gone);
    known.extend(kept.map(|(job, _)| job));
    Ok(known)
}
