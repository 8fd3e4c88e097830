//! The proof of exactly once: engine and workers are killed at random instants of a job that counts its own
//! pushes, and in the end weights, shard counters, iteration counts and samples agree.

use std::{collections::BTreeMap, path::Path};

use syncline_engine::store::keys::JobKeys;
use syncline_scheduler::{
    ids::JobId,
    samples::splitmix64,
    spec::{Compression, ElementRange, NodeKind},
};
use syncline_workers::submit;

use crate::{
    cluster::{Cluster, number, runtime},
    counting::{self, WEIGHTS_TO_TEAR, counts},
};

const KILLS: u64 = 30;
const SAMPLES: u64 = 5_003; // prime: the last batch of each epoch is a short one
const BATCH: u32 = 10;
const EPOCHS: u32 = 2;
const SHARDS: u32 = 2;
const WORKER: &str = "--step-ms 2 --slowdown 1";

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_under_elastic_bsp_lose_and_repeat_nothing() {
    let (cluster, job, summary) = survive("elastic-bsp:15", 20_261_120).await;
    check_every_push(&cluster, &job, &summary).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_under_asp_lose_and_repeat_nothing() {
    let (cluster, job, summary) = survive("asp", 7).await;
    check_every_push(&cluster, &job, &summary).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_under_ssp_lose_and_repeat_nothing() {
    let (cluster, job, summary) = survive("ssp:3", 23).await;
    check_every_push(&cluster, &job, &summary).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_under_local_sgd_count_every_sample_once() {
    let (_cluster, _, summary) = survive("local-sgd:4", 5).await;
    // A round that was torn may be missing in some chunks, so the weights say less here than the counters.
    assert!(number(&summary, "barriers") > 20 * u64::from(EPOCHS), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_under_auto_count_every_sample_once() {
    let (_cluster, _, summary) = survive("auto+predictor=narx", 31).await;
    // Whatever it chose, workers meet at the end of an epoch at the latest. How often they do before depends
    // on when the kills fall: while somebody dead, whose speed nobody knows, is still of the round, the
    // others go on without a plan.
    let barriers = number(&summary, "barriers");
    println!("{barriers} barriers");
    assert!(barriers >= u64::from(EPOCHS), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_under_bsp_make_one_update_of_every_round() {
    let (_cluster, _, summary) = survive("bsp", 11).await;
    let (barriers, torn) = (number(&summary, "barriers"), number(&summary, "iterations_torn"));
    let counts = counts(Path::new(&summary["snapshot"]));
    let (low, high) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    println!("{barriers} barriers, weights {low}..{high}");
    // The mean of ones is one: a round is one step wherever at least one push arrived. Rounds whose workers
    // all died make none, and a torn push may be all that a round got in some chunks.
    assert!(
        high <= barriers && high - low <= torn,
        "{barriers} barriers, {torn} torn, weights {low}..{high}"
    );
    assert!(high + 2 * KILLS >= barriers);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_with_gradients_in_sixteen_bits_lose_and_repeat_nothing() {
    // A gradient of ones is the same in 16 bits, so that weights count as ever.
    let (cluster, job, summary) = survive_compressed("asp", 41, Compression::Bf16).await;
    check_every_push(&cluster, &job, &summary).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_kills_with_the_largest_of_gradients_count_every_sample_once() {
    let compression = Compression::TopK(0.5);
    let (_cluster, _, summary) = survive_compressed("elastic-bsp:15", 43, compression).await;
    // Half of a push comes with it, and the rest with the next one of the same worker, unless that died
    // before.
    let pushes = number(&summary, "iterations_done") + number(&summary, "iterations_torn");
    let counts = counts(Path::new(&summary["snapshot"]));
    let (low, high) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    println!("{pushes} pushes, weights {low}..{high}");
    assert!(high <= pushes && low + 2 * KILLS + 8 >= number(&summary, "iterations_done"));
}

/// Runs a job through thirty kills, and checks what holds under every policy.
async fn survive(policy: &str, seed: u64) -> (Cluster, JobId, BTreeMap<String, String>) {
    survive_compressed(policy, seed, Compression::None).await
}

async fn survive_compressed(
    policy: &str,
    seed: u64,
    compression: Compression,
) -> (Cluster, JobId, BTreeMap<String, String>) {
    println!("seed {seed}");
    let mut cluster = Cluster::start(SHARDS, 4, WORKER).await;
    let graph = counting::job_to_tear("counting", policy.parse().unwrap(), SAMPLES, BATCH, EPOCHS, seed);
    let mut prepared = submit::prepare(&runtime(), &graph).unwrap();
    let NodeKind::Train(train) = &mut prepared.spec.nodes[0].kind else { unreachable!("it trains") };
    train.compression = compression;
    let job = prepared.spec.id.clone();
    let client = cluster.client();
    client.shards().await.unwrap();
    client.submit_prepared(prepared).await.unwrap();

    kill_engines_and_workers(&mut cluster, &job, KILLS, SAMPLES * u64::from(EPOCHS), WORKER, seed).await;
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    let (done, torn) = (number(&summary, "iterations_done"), number(&summary, "iterations_torn"));
    println!("{done} done, {torn} torn, {} lost", number(&summary, "iterations_lost"));
    assert_eq!(number(&summary, "samples_applied"), SAMPLES * u64::from(EPOCHS));
    assert_eq!(number(&summary, "epochs_complete"), u64::from(EPOCHS));
    // Every epoch takes at least this many iterations; returned ranges may be cut into more.
    assert!(done + torn >= u64::from(EPOCHS) * SAMPLES.div_ceil(u64::from(BATCH)));
    (cluster, job, summary)
}

/// Kills the engine or a worker again and again while a job of `total` samples runs, and starts another in
/// its place.
pub async fn kill_engines_and_workers(
    cluster: &mut Cluster,
    job: &JobId,
    kills: u64,
    total: u64,
    worker: &str,
    seed: u64,
) {
    // Random instants, measured in progress: each kill happens when so many samples have been applied.
    let mut random = seed;
    let mut draw = |below: u64| splitmix64(&mut random) % below;
    let mut instants: Vec<u64> = (0..kills).map(|_| draw(total * 9 / 10)).collect();
    instants.sort_unstable();
    for instant in instants {
        cluster.until(job, |s| number(s, "samples_applied") >= instant).await;
        if draw(2) == 0 {
            cluster.kill_engine();
            cluster.start_engine();
        } else {
            let victim = draw(cluster.workers.len() as u64) as usize;
            cluster.workers[victim].kill();
            cluster.workers[victim] = cluster.spawn_worker(worker);
        }
    }
}

/// Where each push is a step of 1, weights, shard counters and iteration counts agree.
async fn check_every_push(cluster: &Cluster, job: &JobId, summary: &BTreeMap<String, String>) {
    let (done, torn) = (number(summary, "iterations_done"), number(summary, "iterations_torn"));

    let counts = counts(Path::new(&summary["snapshot"]));
    let pushes = shard_pushes(cluster, job).await;
    assert_eq!(pushes.len(), SHARDS as usize);
    for (shard, &pushes) in pushes.iter().enumerate() {
        let range = ElementRange::of_shard(WEIGHTS_TO_TEAR as u64, shard as u32, SHARDS);
        let part = &counts[range.start as usize..range.end as usize];
        let (low, high) = (*part.iter().min().unwrap(), *part.iter().max().unwrap());
        // A shard counts a push when all its chunks are applied: a torn one may be in some chunks only.
        assert!(
            (done..=done + torn).contains(&pushes),
            "shard {shard}: {pushes} pushes, {done} done, {torn} torn"
        );
        assert!(
            pushes <= low && high <= done + torn,
            "shard {shard}: weights {low}..{high}, {pushes} pushes"
        );
        if torn == 0 {
            assert_eq!((low, high, pushes), (done, done, done));
        }
    }
}

/// Pushes that each shard had applied when the last barrier closed.
async fn shard_pushes(cluster: &Cluster, job: &JobId) -> Vec<u64> {
    let spans = cluster.store.hash("read supersteps", &JobKeys::new(job).supersteps).await.unwrap();
    let last = spans.iter().max_by_key(|(n, _)| n.parse::<u64>().unwrap()).unwrap().1;
    let span: serde_json::Value = serde_json::from_str(last).unwrap();
    span["closed_by"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).collect()
}
