//! A disk that takes nothing for a while, and jobs that end in other ways than they should: no weights are
//! lost.

use std::{collections::BTreeMap, fs, path::PathBuf};

use syncline_scheduler::ids::JobId;
use syncline_workers::client::FetchError;

use crate::{
    cluster::{Cluster, number},
    counting::counts,
    jobs::{check_exact, check_next_job_runs, counting, submit},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_waits_until_the_disk_takes_it() {
    let cluster = Cluster::start(2, 2, "").await;
    // Whoever runs the tests may write everywhere; where a file stands nobody can make a folder.
    let snapshots = cluster.dir.path().join("shard-0").join("snapshots");
    fs::write(&snapshots, "in the way").unwrap();
    let job = submit(&cluster, counting("full", "asp", 500, |_| {})).await;
    let waits = |s: &BTreeMap<String, String>| s.get("waiting_for").is_some_and(|w| w.contains("[E406]"));
    let summary = cluster.until(&job, waits).await;
    assert_eq!(summary["state"], "running", "{summary:?}");
    fs::remove_file(&snapshots).unwrap();
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, 500);
    assert_eq!(summary["waiting_for"], "");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_snapshot_waits_for_its_disk_the_workers_train_the_next_job() {
    let cluster = Cluster::start(2, 2, "").await;
    let snapshots = cluster.shard_folder(0).join("snapshots");
    fs::write(&snapshots, "in the way").unwrap();
    let full = submit(&cluster, counting("full", "asp", 500, |_| {})).await;
    let next = submit(&cluster, counting("next", "asp", 500, |_| {})).await;
    let summary = cluster.until(&next, |s| number(s, "samples_applied") == 500).await;
    assert_eq!(summary["state"], "running", "its snapshot goes to the same disk: {summary:?}");
    let summary = cluster.summary(&full).await;
    assert_eq!((&*summary["state"], &*summary["workers"]), ("running", "0"), "{summary:?}");
    assert!(summary["waiting_for"].contains("[E406]"), "{summary:?}");
    fs::remove_file(&snapshots).unwrap();
    for job in [&full, &next] {
        check_exact(&cluster.until_over(job).await, 500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_stops_and_cannot_write_its_job_yet_is_not_taken_for_one_that_is_gone() {
    const SAMPLES: u64 = 2_000;
    let mut cluster = Cluster::start(1, 1, "--step-ms 5 --slowdown 1").await;
    let job = submit(&cluster, counting("stops", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "iterations_done") > 5).await;
    let in_the_way = cluster.shard_folder(0).join("jobs/stops.job");
    fs::create_dir(&in_the_way).unwrap();
    cluster.shards[0].signal("TERM");
    let waits = |s: &BTreeMap<String, String>| s["waiting_for"].contains("counts as lost");
    let waits_for = cluster.until(&job, waits).await["waiting_for"].clone();
    let address = waits_for.split("(the one at ").nth(1).and_then(|rest| rest.split(' ').next());
    let stops = format!("at {} stops, and is held up: [E428] job stops", address.unwrap_or_default());
    assert!(waits_for.contains(&stops), "{waits_for}");
    let status = cluster.print("status stops");
    assert!(status.contains(&format!("parameter shard s0 {stops}")), "{status}");
    let doctor = String::from_utf8(cluster.ask(&cluster.engines, "doctor").stdout).unwrap();
    assert!(doctor.contains(&stops) && doctor.contains("leave the process that stops alone"), "{doctor}");
    fs::remove_dir(&in_the_way).unwrap();
    cluster.shards[0].wait();
    cluster.start_shard(0);
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, SAMPLES);
    assert_eq!((number(&summary, "generation"), number(&summary, "iterations_rolled_back")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_job_keeps_its_last_weights() {
    let cluster = Cluster::start(2, 2, "--step-ms 5 --slowdown 1").await;
    let job = submit(&cluster, counting("canceled", "asp", 100_000, |_| {})).await;
    let before = cluster.until(&job, |s| number(s, "iterations_done") > 20).await;
    cluster.client().cancel(&job).await.unwrap();
    let kept = |s: &BTreeMap<String, String>| s.get("snapshot").is_some_and(|path| !path.is_empty());
    let summary = cluster.until(&job, kept).await;
    assert_eq!(summary["state"], "canceled");
    let low = *counts(std::path::Path::new(&summary["snapshot"])).iter().min().unwrap();
    assert!(low >= number(&before, "iterations_done"), "{low}: {summary:?}");
    check_next_job_runs(&cluster, "next").await;
    // The name is free again once the job is deleted, and what was kept stays.
    cluster.client().delete(&job).await.unwrap();
    check_next_job_runs(&cluster, "canceled").await;
    assert!(std::path::Path::new(&summary["snapshot"]).exists());
}

/// A job that is done, and whose last weights the disk does not take; with it what is in the way.
async fn done_on_a_full_disk(cluster: &Cluster) -> (JobId, PathBuf) {
    let snapshots = cluster.shard_folder(0).join("snapshots");
    fs::write(&snapshots, "in the way").unwrap();
    let mut prepared = counting("full-at-end", "asp", 500, |_| {});
    prepared.spec.nodes.truncate(1);
    let job = submit(cluster, prepared).await;
    let told =
        |s: &BTreeMap<String, String>| s.get("weights_problem").is_some_and(|why| why.contains("[E406]"));
    let summary = cluster.until(&job, told).await;
    assert_eq!((&*summary["state"], &*summary["weights_pending"]), ("done", "true"), "{summary:?}");
    for command in ["status full-at-end", "jobs"] {
        let said = cluster.print(command);
        assert!(said.contains("its last weights are not written yet: [E406]"), "{command}: {said}");
    }
    (job, snapshots)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_done_is_waited_for_until_the_disk_takes_its_last_weights() {
    let cluster = Cluster::start(2, 2, "").await;
    let (job, in_the_way) = done_on_a_full_disk(&cluster).await;
    let client = cluster.client();
    let ended = client
        .wait(&job, |view| {
            // It is there, and nothing but its weights is to come.
            assert!(view.job.is_over());
            let _ = fs::remove_file(&in_the_way);
        })
        .await
        .unwrap();
    assert!(ended.job.snapshot.is_some(), "{ended:?}");
    assert_eq!(ended.job.weights_problem, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_weights_that_are_lost_with_a_shard_are_told_of_for_as_long_as_the_job_is_known() {
    let mut cluster = Cluster::start(2, 2, "").await;
    let (job, in_the_way) = done_on_a_full_disk(&cluster).await;
    cluster.shards[1].kill();
    cluster.start_shard(1);
    fs::remove_file(&in_the_way).unwrap();
    let error = cluster.client().wait(&job, |_| {}).await.unwrap_err();
    assert_eq!(error.code(), "E642", "{error}");
    let summary = cluster.summary(&job).await;
    assert_eq!(
        (&*summary["state"], &*summary["weights_pending"], &*summary["weights_problem"]),
        ("done", "false", "")
    );
    for command in ["status full-at-end", "jobs"] {
        let said = cluster.print(command);
        assert!(
            said.contains(&format!("its last weights are lost: {}", summary["weights_lost"])),
            "{command}: {said}"
        );
    }
    let watched = cluster.ask(&cluster.engines, "watch full-at-end");
    assert_eq!(watched.status.code(), Some(1), "{watched:?}");
    let refused = cluster.client().weights(&job).await.unwrap_err();
    assert!(matches!(refused, FetchError::WeightsLost { .. }), "{refused}");
}
