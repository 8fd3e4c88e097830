//! Shards of two processes each, any of which are killed with -9 or stopped in the middle of a job: the other
//! one goes on, and nothing that anybody was told of is lost or made twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use syncline_engine::store::keys;
use syncline_scheduler::{
    ids::{JobId, ShardIndex},
    samples::splitmix64,
    spec::{Compression, TrainSpec},
};

use crate::{
    checkpoints::every_epoch,
    cluster::{Cluster, PATIENCE, eventually, number, number_if_any},
    jobs::{check_exact, check_next_job_runs, counting, submit},
};

const SAMPLES: u64 = 10_007; // prime: the last batch of each epoch is a short one
const SHARDS: u32 = 2;
/// Slow enough that something can be killed again and again.
const WORKER: &str = "--step-ms 8 --slowdown 1";

/// What the engine publishes of a shard.
pub(crate) async fn shard(cluster: &Cluster, index: u32) -> BTreeMap<String, String> {
    cluster.store.hash("read shard", &keys::shard(ShardIndex(index))).await.unwrap()
}

/// Waits until the process that follows a shard has everything of the job, and returns where both are; `None`
/// once the job is over.
pub(crate) async fn followed(cluster: &Cluster, job: &JobId, index: u32) -> Option<(String, String)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let about = shard(cluster, index).await;
        let (primary, standby) = (about.get("address"), about.get("standby").filter(|at| !at.is_empty()));
        if let (Some(primary), Some(standby)) = (primary, standby)
            && number(&about, "standby_jobs") == 1
            && cluster.is_running_shard(primary)
            && cluster.is_running_shard(standby)
            && blobs(cluster, primary).is_subset(&blobs(cluster, standby))
        {
            return Some((primary.clone(), standby.clone()));
        }
        if is_over(cluster, job).await {
            return None;
        }
        assert!(Instant::now() < deadline, "waited for too long: {about:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Names of the blobs on the disk of the process that listens there. Those that came before the process that
/// serves had another one are fetched by that, a second later at most.
fn blobs(cluster: &Cluster, address: &str) -> BTreeSet<OsString> {
    let names = fs::read_dir(cluster.shard_dir(address).join("blobs")).into_iter().flatten().flatten();
    // Those that are on their way have an ending.
    names.map(|entry| entry.file_name()).filter(|name| Path::new(name).extension().is_none()).collect()
}

async fn replicated(shards: u32, workers: u32) -> Cluster {
    Cluster::of(shards, workers).worker_flags(WORKER).replicated().default_shard_silence().start().await
}

/// Kills processes of shards, the engine and workers, and checks the counts of the end.
async fn survives(policy: &str, seed: u64) {
    survives_compressed(policy, seed, Compression::None).await;
}

async fn survives_compressed(policy: &str, seed: u64, compression: Compression) {
    println!("seed {seed}");
    let mut random = seed;
    let mut draw = |n: u64| splitmix64(&mut random) % n;
    let mut cluster = replicated(SHARDS, 3).await;
    let epochs = 2; // the last process dies in the first one
    let changed = |train: &mut TrainSpec| (train.epochs, train.compression) = (epochs, compression);
    let job = submit(&cluster, counting("followed", policy, SAMPLES, changed)).await;
    let mut killed = 0;
    while killed < 5 {
        let index = (killed % u64::from(SHARDS)) as u32;
        let Some((primary, standby)) = followed(&cluster, &job, index).await else { break };
        // Mostly the one that serves.
        let victim = if draw(4) == 0 { standby } else { primary };
        match draw(3) {
            0 => cluster.kill_engine(),
            1 => {
                let worker = draw(3) as usize;
                cluster.workers[worker].kill();
                cluster.workers[worker] = cluster.spawn_worker(WORKER);
            }
            _ => {}
        }
        cluster.kill_and_restart_shard(&victim);
        if cluster.engine.is_none() {
            cluster.start_engine();
        }
        killed += 1;
    }
    let summary = cluster.until_over(&job).await;
    assert!(killed > 1, "killed {killed} processes: {summary:?}");
    check_exact(&summary, SAMPLES * u64::from(epochs));
    assert_eq!(number(&summary, "iterations_rolled_back"), 0, "{summary:?}");
    let events = cluster.print("events followed");
    assert!(events.contains("shard_taken_over"), "{events}");
    check_next_job_runs(&cluster, "next").await;
}

async fn is_over(cluster: &Cluster, job: &JobId) -> bool {
    matches!(&*cluster.summary(job).await["state"], "done" | "failed" | "canceled")
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_any_process_under_asp_lose_and_repeat_nothing() {
    survives("asp", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_any_process_with_gradients_in_eight_bits_lose_and_repeat_nothing() {
    survives_compressed("asp", 13, Compression::Int8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_any_process_under_bsp_lose_and_repeat_nothing() {
    survives("bsp", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_any_process_under_elastic_bsp_lose_and_repeat_nothing() {
    survives("elastic-bsp:15", 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_hangs_makes_way_and_follows_when_it_wakes() {
    let cluster = replicated(1, 2).await;
    let job = submit(&cluster, counting("hangs", "ssp:3", SAMPLES, |train| train.epochs = 2)).await;
    let (primary, standby) = followed(&cluster, &job, 0).await.unwrap();
    cluster.signal_shard(&primary, "STOP");
    // The other one serves, and the job goes on meanwhile.
    eventually("the standby serves", async || shard(&cluster, 0).await["address"] == standby).await;
    let before = number(&cluster.summary(&job).await, "samples_applied");
    cluster.until(&job, |s| number(s, "samples_applied") > before + 100).await;
    cluster.signal_shard(&primary, "CONT");
    assert_eq!(followed(&cluster, &job, 0).await.unwrap(), (standby, primary));
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, 2 * SAMPLES);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stops_cleanly_and_starts_in_any_order_goes_on() {
    let mut cluster = replicated(1, 2).await;
    let job = submit(&cluster, counting("night", "asp", SAMPLES, |train| train.epochs = 2)).await;
    let (primary, _) = followed(&cluster, &job, 0).await.unwrap();
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    // The one that follows comes first in the morning: it must not take the place of the one that has the
    // job.
    cluster.stop_and_start_shards(&primary, |shards| shards.reverse());
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, 2 * SAMPLES);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_were_stopped_one_after_the_other_the_last_one_goes_on_whichever_comes_first() {
    let mut cluster = replicated(1, 2).await;
    let job = submit(&cluster, counting("reboots", "asp", SAMPLES, |train| train.epochs = 2)).await;
    let (first, second) = followed(&cluster, &job, 0).await.unwrap();
    let first = cluster.stop_shard(&first);
    let before = number(&cluster.summary(&job).await, "samples_applied");
    cluster.until(&job, |s| number(s, "samples_applied") > before + 100).await;
    let second = cluster.stop_shard(&second);
    cluster.start_stopped_shard(first);
    cluster.start_stopped_shard(second);
    check_exact(&cluster.until_over(&job).await, 2 * SAMPLES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_machine_in_place_of_a_dead_one_costs_nothing_that_was_done() {
    let mut cluster = replicated(1, 2).await;
    let job = submit(&cluster, counting("done", "asp", 100, |_| {})).await;
    check_exact(&cluster.until_over(&job).await, 100);
    // No job is open: the one that follows has nothing but blobs, of which the weights are one.
    let next = submit(&cluster, counting("next", "asp", SAMPLES, |_| {})).await;
    let (primary, standby) = followed(&cluster, &next, 0).await.unwrap();
    cluster.until_over(&next).await;
    cluster.replace_machine(&primary);
    let serves = async || shard(&cluster, 0).await.get("address") == Some(&standby);
    eventually("the standby serves", serves).await;
    cluster.client().weights(&job).await.unwrap();
    check_next_job_runs(&cluster, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkpoints_of_before_outlive_both_machines_one_after_the_other() {
    let mut cluster = replicated(1, 2).await;
    let kept = submit(&cluster, counting("kept", "asp", 100, every_epoch)).await;
    cluster.until_over(&kept).await;
    for name in ["once", "twice"] {
        // What is told of the second process is told of the job before until both have closed that.
        eventually("the job of before is closed", async || {
            shard(&cluster, 0).await.get("standby_jobs").is_none_or(|jobs| jobs == "0")
        })
        .await;
        // The one that serves has the checkpoint, whichever of the machines that is, and the other one gets
        // it.
        let job = submit(&cluster, counting(name, "asp", SAMPLES, |_| {})).await;
        let (primary, standby) = followed(&cluster, &job, 0).await.unwrap();
        let dirs = [&primary, &standby].map(|address| cluster.shard_dir(address).join("checkpoints"));
        eventually("both machines have the same checkpoints", async || {
            let [first, second] = dirs.each_ref().map(|dir| files_in(dir));
            !first.is_empty() && first == second
        })
        .await;
        cluster.replace_machine(&primary);
        check_exact(&cluster.until_over(&job).await, SAMPLES);
    }
    let folder = tempfile::tempdir().unwrap();
    let text =
        cluster.print(&format!("checkpoint kept {}", folder.path().join("kept.safetensors").display()));
    assert!(text.starts_with("checkpoint "), "{text}");
    check_next_job_runs(&cluster, "after").await;
}

/// Of both machines, which were without power, one has a new disk, and comes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_back_to_a_checkpoint_that_only_the_machine_which_follows_has() {
    let mut cluster = replicated(1, 2).await;
    let changed = |train: &mut TrainSpec| {
        every_epoch(train);
        train.epochs = 3;
    };
    let job = submit(&cluster, counting("power", "asp", SAMPLES, changed)).await;
    let (primary, standby) = followed(&cluster, &job, 0).await.unwrap();
    let kept = cluster.shard_dir(&standby).join("checkpoints");
    eventually("the second process has a checkpoint", async || !files_in(&kept).is_empty()).await;
    // Behind the newest one, so that there is something to go back on.
    let beyond = |s: &BTreeMap<String, String>| {
        number_if_any(s, "checkpoint_samples").is_some_and(|kept| number(s, "samples_applied") > kept + 100)
    };
    cluster.until(&job, beyond).await;
    cluster.kill_engine();
    let (first, second) = (cluster.kill_shard(&primary), cluster.kill_shard(&standby));
    cluster.start_engine();
    cluster.start_stopped_shard(first.with_new_disk());
    cluster.start_stopped_shard(second);
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, 3 * SAMPLES);
    assert!(number(&summary, "iterations_rolled_back") > 0, "{summary:?}");
    assert!(cluster.print("events power").contains("rolled_back"));
    let serving = shard(&cluster, 0).await["address"].clone();
    let serving = cluster.shard_dir(&serving).display().to_string();
    assert!(serving.ends_with("-new"), "the one without checkpoints serves: {serving}");
}

/// Names and contents of all whole files of checkpoints.
fn files_in(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries(dir).flat_map(|job| entries(&job).collect::<Vec<_>>());
    let whole = files.filter(|path| path.extension().is_some_and(|ending| ending == "checkpoint"));
    whole.map(|path| (path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused_where_shards_have_one() {
    let cluster = Cluster::start(1, 0, "").await;
    cluster.client().shards().await.unwrap();
    let second = cluster.run_second_shard_process(0, 1);
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("E425") && said.contains("--replicas 2"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_right_after_a_kill_keeps_the_copies_of_the_one_that_followed() {
    let mut cluster = replicated(1, 2).await;
    let job = submit(&cluster, counting("kept", "asp", SAMPLES, |train| train.epochs = 2)).await;
    let (primary, standby) = followed(&cluster, &job, 0).await.unwrap();
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    // Nobody has told the second one that it is to serve.
    let primary = cluster.kill_shard(&primary);
    let standby = cluster.stop_shard(&standby);
    cluster.start_stopped_shard(primary);
    cluster.start_stopped_shard(standby);
    check_exact(&cluster.until_over(&job).await, 2 * SAMPLES);
}
