//! A disk that takes nothing for a while, and jobs that end in other ways than they should: no weights are lost.

use std::{collections::BTreeMap, fs};

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
