//! Removes blobs that no job names any more: now and then by itself, and when somebody asks.

use std::{collections::BTreeSet, mem, time::Duration};

use syncline_rpc::{Cause, Collected, DigestRange, EngineFault, ShardClient, within};
use syncline_scheduler::{
    core::{Job, StoredJob},
    ids::{ContentDigest, JobId},
};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{context::store_fault, damaged_jobs::Damage, lead::Lead};
use crate::store::{RedisStore, StoreError, keys::ENDED_JOB_EXPIRY_S};

/// From the beginning of a lead to its first look, and from each look to the next.
const FIRST_LOOK: Duration = Duration::from_secs(600);
const INTERVAL: Duration = Duration::from_secs(6 * 3_600);
/// A blob that was uploaded or asked for within this time is not collected unasked: Redis may stand on what
/// it was before, and knows again later who names it.
const MIN_AGE: Duration = Duration::from_secs(ENDED_JOB_EXPIRY_S);
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Most digests in one call: 13 MB of the 64 MiB of a frame. For each call a shard goes through all its
/// blobs.
const KEPT_PER_CALL: usize = 200_000;

/// Collects at each [`INTERVAL`] what was named neither then nor at the look before, forever: a name that
/// moves within a large graph while that is read may be overlooked once. Nothing while shards keep jobs that
/// Redis does not know: these need theirs, of any age.
pub(super) async fn collect_periodically(store: RedisStore, lead: Lead) {
    let (mut named_before, mut pause) = (None, FIRST_LOOK);
    loop {
        sleep(pause).await;
        pause = INTERVAL;
        let collected = async {
            let named = named_blobs(&store, &lead).await?;
            let removed = match named_before.take() {
                Some(before) => remove_unasked(&lead, &named | &before).await,
                None => Ok(Collected::default()),
            };
            named_before = Some(named);
            removed
        };
        match collected.await {
            Ok(Collected { blobs: 0, .. }) => {}
            Ok(Collected { blobs, bytes }) => info!(blobs, bytes, "removed blobs that no job names"),
            Err(error) => warn!(%error, "cannot remove blobs that no job names"),
        }
    }
}

/// Removes from every shard the blobs that no job names and that are older than this. Looks twice.
pub(super) async fn collect_blobs(
    store: &RedisStore,
    lead: &Lead,
    older_than: Duration,
) -> Result<Collected, EngineFault> {
    let (once, again) = (named_blobs(store, lead).await?, named_blobs(store, lead).await?);
    remove_others(lead, &once | &again, older_than).await
}

async fn remove_unasked(lead: &Lead, named: BTreeSet<ContentDigest>) -> Result<Collected, EngineFault> {
    if lead.shards.keep_unknown_jobs() {
        info!("shards have set aside jobs that Redis does not know: blobs that no job names stay");
        return Ok(Collected::default());
    }
    remove_others(lead, named, MIN_AGE).await
}

async fn named_blobs(store: &RedisStore, lead: &Lead) -> Result<BTreeSet<ContentDigest>, EngineFault> {
    referenced_blobs(store, lead.live_jobs().await?).await
}

async fn remove_others(
    lead: &Lead,
    named: BTreeSet<ContentDigest>,
    older_than: Duration,
) -> Result<Collected, EngineFault> {
    let (epoch, older_than_s) = (lead.epoch, older_than.as_secs());
    let mut all = Collected::default();
    for (range, keep) in parts(named, KEPT_PER_CALL) {
        for shard in lead.shards.indices() {
            let collect = |c: ShardClient| {
                let (range, keep) = (range.clone(), keep.clone());
                async move { c.collect(within(CALL_TIMEOUT), epoch, range, keep, older_than_s).await }
            };
            let here = lead.shards.ask_both(shard, "blobs that no job names", collect).await?;
            all.blobs += here.blobs;
            all.bytes += here.bytes;
        }
    }
    Ok(all)
}

/// All digests in ranges, each with those in it that are named: `most` at most.
fn parts(named: BTreeSet<ContentDigest>, most: usize) -> Vec<(DigestRange, Vec<ContentDigest>)> {
    let (mut parts, mut range, mut keep) = (Vec::new(), DigestRange::default(), Vec::new());
    for digest in named {
        if keep.len() == most {
            let next = DigestRange { first: Some(digest), end: None };
            let full = DigestRange { end: Some(digest), ..mem::replace(&mut range, next) };
            parts.push((full, mem::take(&mut keep)));
        }
        keep.push(digest);
    }
    parts.push((range, keep));
    parts
}

/// Every blob that some job names. A job that cannot be read may name any, and so may one of those that are
/// `known` to go on and that Redis has lost, until it is written again: then nothing is removed.
async fn referenced_blobs(
    store: &RedisStore,
    known: BTreeSet<JobId>,
) -> Result<BTreeSet<ContentDigest>, EngineFault> {
    // Commits wait for no answer as large as a graph.
    let store = store.connect_apart().await.map_err(store_fault)?;
    let mut named = BTreeSet::new();
    let listed = store.jobs().await.map_err(store_fault)?;
    let all: BTreeSet<JobId> = known.iter().cloned().chain(listed).collect();
    for job in all {
        let blobs = blobs_of(&store, &job).await?;
        if blobs.is_none() && known.contains(&job) {
            let cause = "Redis has lost it; it is written again soon".into();
            return Err(EngineFault::Unreadable { job, cause });
        }
        // Listed without keys: it has expired, or is about to be written and its blobs are young.
        named.extend(blobs.into_iter().flatten());
    }
    Ok(named)
}

/// The blobs that one job names; `None` if it has no keys. What it comes to name meanwhile is young.
async fn blobs_of(store: &RedisStore, job: &JobId) -> Result<Option<BTreeSet<ContentDigest>>, EngineFault> {
    let unreadable = |cause| EngineFault::Unreadable { job: job.clone(), cause };
    let fault = |error: StoreError| match error.is_of_keys() {
        true => unreadable(error.cause()),
        false => store_fault(error),
    };
    let spec = store.read_spec(job).await.map_err(fault)?;
    if spec.is_empty() {
        return Ok(None);
    }
    if (StoredJob { spec, ..StoredJob::default() }).holds_tasks() {
        let mut named = BTreeSet::new();
        store.scan_graph(job, |text| named.extend(digests(text))).await.map_err(fault)?;
        return Ok(Some(named));
    }
    let stored = store.read(job).await.map_err(fault)?;
    blobs_of_training(&stored).map(Some).map_err(unreadable)
}

/// The blobs that a training names; the reason if it cannot be read.
fn blobs_of_training(stored: &StoredJob) -> Result<BTreeSet<ContentDigest>, Cause> {
    let job = Job::load(stored).map_err(|e| Damage::from(e).cause())?;
    let blobs = job.spec().train().model.blobs();
    // The shards keep a snapshot as a blob, too: for evaluation and for whoever exports the model.
    let snapshot = job.snapshot().map(|file| file.digest);
    Ok(blobs.into_iter().chain(snapshot).collect())
}

/// The digests in a class, an argument or a value of a graph: of large values that tasks gave, large
/// arguments, what trainings need, and what users name in values of their own, such as models and weights.
/// One counts wherever it stands.
///
/// The first 64 of any longer run of hexadecimal digits: in front of a digest stands its length, `@` in
/// postcard, but what follows may look like another digit.
fn digests(text: &[u8]) -> impl Iterator<Item = ContentDigest> + '_ {
    let runs = text.split(|byte| !byte.is_ascii_hexdigit());
    runs.filter_map(|run| {
        // A user may have spelt it in capitals.
        let digits = str::from_utf8(run.get(..ContentDigest::DIGITS)?).ok()?;
        digits.to_ascii_lowercase().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use syncline_rpc::{MAX_FRAME_BYTES, ShardHello, ShardRequest, ShardResponse};

    use super::*;
    use crate::service::fake_shard::{EPOCH, Noted, lead, start};

    #[tokio::test]
    async fn nothing_is_removed_unasked_while_a_shard_keeps_a_job_that_redis_does_not_know() {
        let ages: Arc<Mutex<Vec<u64>>> = Arc::default();
        let noted = ages.clone();
        let hello = start(0, move |request| match request {
            ShardRequest::Collect { older_than_s, .. } => {
                noted.lock().unwrap().push(older_than_s);
                ShardResponse::Collect(Ok(Collected { blobs: 1, bytes: 1 }))
            }
            other => panic!("{other:?}"),
        });
        let (hello, (lead, _inbox)) = (hello.await, lead());
        for (set_aside, removed) in [(1, 0), (0, 1)] {
            let hello = ShardHello { set_aside, ..hello.clone() };
            lead.shards.announce(hello, EPOCH, &Noted).await;
            assert_eq!(remove_unasked(&lead, BTreeSet::new()).await.unwrap().blobs, removed);
        }
        assert_eq!(*ages.lock().unwrap(), [7 * 86_400], "what Redis keeps a job for that is over");
    }

    /// Digests in the order of their letters.
    fn digest(letter: &str) -> ContentDigest {
        ContentDigest::from_bytes([letter.as_bytes()[0]; 32])
    }

    #[test]
    fn whatever_jobs_name_fits_into_frames_and_every_digest_is_asked_about_once() {
        const { assert!(KEPT_PER_CALL * 2 * ContentDigest::DIGITS < MAX_FRAME_BYTES) };
        for (named, sizes) in [("", vec![0]), ("b", vec![1]), ("b d", vec![2]), ("b d f h j", vec![2, 2, 1])]
        {
            let named: BTreeSet<ContentDigest> = named.split_whitespace().map(digest).collect();
            let parts = parts(named.clone(), 2);
            assert_eq!(parts.iter().map(|(_, keep)| keep.len()).collect::<Vec<_>>(), sizes, "{named:?}");
            for digest in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"].map(digest) {
                let asked: Vec<_> = parts.iter().filter(|(range, _)| range.contains(digest)).collect();
                let is_kept = asked.iter().any(|(_, keep)| keep.contains(&digest));
                assert_eq!((asked.len(), is_kept), (1, named.contains(&digest)), "{digest} of {named:?}");
            }
        }
    }

    #[test]
    fn every_digest_that_a_graph_names_is_found() {
        let [constant, model, followed, given, inline] =
            ["a1", "b2", "c3", "d4", "e5"].map(|pair| pair.repeat(32));
        let short = "f6".repeat(31);
        let chunk =
            format!(r#"[0,[{{"digest":"{constant}","bytes":7}},"@{model}","@{followed}a","{short}"]]"#);
        let large = format!("@{given}:9");
        let small = [b"=\xff@", inline.to_uppercase().as_bytes(), b"0\xff"].concat();
        let found: Vec<ContentDigest> =
            [chunk.as_bytes(), large.as_bytes(), &small].into_iter().flat_map(digests).collect();
        let named = [constant, model, followed, given, inline].map(|text| text.parse().unwrap());
        assert_eq!(found, named);
    }
}
