//! A shard that is stopped cleanly and comes back: at another address, or with the state of an earlier day.

use std::{fs, path::Path, time::Duration};

use crate::{
    cluster::{Cluster, eventually, number},
    jobs::{check_exact, check_next_job_runs, counting, submit},
};

const SAMPLES: u64 = 4_000;
const WORKER: &str = "--step-ms 5 --slowdown 1";

/// Moves every shard once in the middle of a job, whose counts are exact and of which nobody loses anything.
async fn moves(policy: &str, clip_norm: Option<f32>) {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("moved", policy, SAMPLES, |s| s.clip_norm = clip_norm)).await;
    for shard in 0..2 {
        let far = SAMPLES * u64::from(shard + 1) / 4;
        cluster.until(&job, |s| number(s, "samples_applied") > far).await;
        cluster.restart_shard(shard, || {});
    }
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, SAMPLES);
    assert_eq!(number(&summary, "iterations_lost") + number(&summary, "iterations_torn"), 0, "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_find_a_shard_that_came_back_at_another_address_and_so_does_the_snapshot() {
    moves("asp", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_that_clip_rounds_together_find_each_other_again() {
    // So large that nothing is scaled: the counts stay whole.
    moves("bsp", Some(1e9)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_that_come_back_at_each_others_address_go_on_with_their_own_parameters() {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("exchanged", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    cluster.exchange_shards().await;
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_stopped_while_it_starts_keeps_its_jobs() {
    let mut cluster = Cluster::of(1, 1).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("kept", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 500).await;
    let (saved, start_and_stop) = (cluster.shard_folder(0).join("jobs/kept.job"), cluster.shard_stopper(0));
    let mut unheard = cluster.shard_command(0);
    unheard.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    cluster.restart_shard(0, || {
        for us in (0..15_000).step_by(250) {
            start_and_stop(Duration::from_micros(us));
            assert!(saved.exists(), "stopped {us} us after its start");
        }
        let ended = unheard.status().unwrap();
        assert!(!ended.success() && saved.exists(), "{ended}: it cannot say where it listens");
    });
    check_exact(&cluster.until_over(&job).await, SAMPLES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_submitted_while_a_shard_is_away_begins_when_it_is_back() {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let client = cluster.client();
    client.shards().await.unwrap();
    cluster.shards[1].kill();
    let prepared = counting("early", "bsp", SAMPLES, |_| {});
    let job = prepared.spec.id.clone();
    let submitting = tokio::spawn(async move { client.submit_prepared(prepared).await });
    cluster.start_shard(1);
    assert!(submitting.await.unwrap().unwrap().is_new);
    check_exact(&cluster.until_over(&job).await, SAMPLES);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Who is stopped as well while a shard gets an older state.
#[derive(Clone, Copy, PartialEq)]
enum Stopped {
    Nobody,
    Engine,
    WorkersAndEngine,
}

/// Gives a shard back the state of an earlier stop in the middle of a job.
async fn goes_back(policy: &str, stopped: Stopped) {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job =
        submit(&cluster, counting("back", policy, 100 * SAMPLES, |train| train.checkpoint = None)).await;
    let (folder, kept) = (cluster.shard_folder(1), cluster.dir.path().join("kept"));
    cluster.until(&job, |s| number(s, "samples_applied") > 500).await;
    cluster.restart_shard(1, || copy(&folder, &kept));
    let before = number(&cluster.summary(&job).await, "samples_applied");
    cluster.until(&job, |s| number(s, "samples_applied") > before + 500).await;
    if stopped == Stopped::WorkersAndEngine {
        for worker in &mut cluster.workers {
            worker.signal("TERM");
            worker.wait();
        }
        eventually("both that have left are sealed", async || {
            cluster.print("events back").matches("worker_sealed").count() >= 2
        })
        .await;
    }
    if stopped != Stopped::Nobody {
        cluster.kill_engine();
    }
    cluster.restart_shard(1, || {
        fs::remove_dir_all(&folder).unwrap();
        fs::rename(&kept, &folder).unwrap();
    });
    if stopped != Stopped::Nobody {
        cluster.start_engine();
    }
    if stopped == Stopped::WorkersAndEngine {
        cluster.workers = (0..2).map(|_| cluster.spawn_worker(WORKER)).collect();
    }
    let summary = cluster.until_over(&job).await;
    assert_eq!((summary["state"].as_str(), summary["code"].as_str()), ("failed", "E220"), "{summary:?}");
    assert!(summary["reason"].contains("older state"), "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_went_back_ends_a_job_of_steps_instead_of_losing_pushes_in_silence() {
    goes_back("asp", Stopped::Nobody).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_went_back_while_the_engine_was_gone_ends_a_job_of_rounds() {
    goes_back("bsp", Stopped::Engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_went_back_while_everybody_was_stopped_ends_a_job_of_steps() {
    goes_back("asp", Stopped::WorkersAndEngine).await;
}
