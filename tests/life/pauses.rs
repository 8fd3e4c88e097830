//! Processes that stand still for a while and go on: nobody is taken for dead because somebody else was
//! asleep.

use std::time::Duration;

use crate::{
    cluster::{Cluster, Process, eventually, number},
    jobs::{check_exact, check_next_job_runs, counting, notes, submit},
};

const SAMPLES: u64 = 3_000;
/// Longer than a worker may be silent in these clusters.
const PAUSE: Duration = Duration::from_secs(5);

/// Stops the processes that `chosen` picks in the middle of a job, and lets them go on after `PAUSE`.
async fn pause(policy: &str, chosen: impl Fn(&Cluster) -> Vec<&Process>) {
    let cluster = Cluster::start(2, 2, "--step-ms 10 --slowdown 1").await;
    let job = submit(&cluster, counting("paused", policy, SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    for process in chosen(&cluster) {
        process.signal("STOP");
    }
    tokio::time::sleep(PAUSE).await;
    for process in chosen(&cluster) {
        process.signal("CONT");
    }
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, SAMPLES);
    assert_eq!(number(&summary, "iterations_lost") + number(&summary, "iterations_torn"), 0, "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_slept_drops_nobody() {
    pause("elastic-bsp:15", |c| c.engine.iter().collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_slept_goes_on_where_it_was() {
    pause("bsp", |c| c.engine.iter().chain(&c.shards).chain(&c.workers).collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_shard_is_shown_before_it_is_lost_and_may_come_back() {
    let cluster =
        Cluster::of(2, 2).worker_flags("--step-ms 10 --slowdown 1").shard_silence_ms(60_000).start().await;
    let job = submit(&cluster, counting("silent", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    cluster.shards[1].signal("STOP");
    let client = cluster.client();
    eventually("the notes say that the shard is silent", async || {
        let notes = notes(&client, &job).await.unwrap();
        notes.iter().any(|note| note.contains("shard s1") && note.contains("silent"))
    })
    .await;
    for command in ["doctor", "jobs", "jobs --json", "status silent", "status silent --json"] {
        let asked = cluster.ask(&cluster.engines, command);
        let said = String::from_utf8_lossy(&asked.stdout);
        assert!(said.contains("parameter shard s1") && said.contains("silent for"), "{command}: {said}");
        assert!(command != "doctor" || said.contains("warn  shards        2 of 2; "), "{said}");
    }
    cluster.shards[1].signal("CONT");
    check_exact(&cluster.until_over(&job).await, SAMPLES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_slept_too_long_is_dropped_and_comes_back() {
    let cluster = Cluster::start(2, 2, "--step-ms 10 --slowdown 1").await;
    let job = submit(&cluster, counting("sleeper", "bsp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    cluster.workers[0].signal("STOP");
    // The other one is freed from the barrier and goes on alone.
    let alone = |s: &std::collections::BTreeMap<String, String>| number(s, "workers") == 1;
    let before = number(&cluster.until(&job, alone).await, "samples_applied");
    cluster.until(&job, |s| number(s, "samples_applied") > before + 50).await;
    cluster.workers[0].signal("CONT");
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    check_next_job_runs(&cluster, "next").await;
}
