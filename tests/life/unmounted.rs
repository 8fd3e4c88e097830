//! A shard that is started before its disk is mounted: on an empty folder, and then on its own.

use std::{collections::BTreeMap, fs};

use crate::{
    cluster::{Cluster, number},
    jobs::{check_exact, counting, submit},
    replicas::followed,
};

const SAMPLES: u64 = 4_000;

fn waits_for_a_disk(summary: &BTreeMap<String, String>) -> bool {
    summary["waiting_for"].contains("is its disk mounted?")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_shard_that_came_back_before_its_disk_was_mounted() {
    let mut cluster =
        Cluster::of(2, 2).worker_flags("--step-ms 5 --slowdown 1").default_shard_silence().start().await;
    let job = submit(&cluster, counting("unmounted", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    let (folder, disk) = (cluster.shard_folder(1), cluster.dir.path().join("disk"));
    cluster.restart_shard(1, || fs::rename(&folder, &disk).unwrap());
    cluster.until(&job, waits_for_a_disk).await;
    // The next engine knows it, and so does a process that is started again on the empty folder.
    cluster.kill_engine();
    cluster.restart_shard(1, || {});
    cluster.start_engine();
    cluster.until(&job, waits_for_a_disk).await;
    cluster.restart_shard(1, || {
        fs::remove_dir_all(&folder).unwrap();
        fs::rename(&disk, &folder).unwrap();
    });
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, SAMPLES);
    assert_eq!(number(&summary, "generation"), 1, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_shard_both_processes_of_which_came_back_before_their_disks_were_mounted() {
    let mut cluster = Cluster::of(1, 2)
        .worker_flags("--step-ms 5 --slowdown 1")
        .replicated()
        .default_shard_silence()
        .start()
        .await;
    let job = submit(&cluster, counting("unmounted", "asp", SAMPLES, |train| train.epochs = 4)).await;
    followed(&cluster, &job, 0).await.unwrap();
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    let stopped = cluster.stop_all_shards();
    for shard in &stopped {
        cluster.start_stopped_shard(shard.clone().with_new_disk());
    }
    cluster.until(&job, waits_for_a_disk).await;
    cluster.stop_all_shards();
    for shard in stopped {
        cluster.start_stopped_shard(shard);
    }
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, 4 * SAMPLES);
    assert_eq!(number(&summary, "generation"), 1, "{summary:?}");
}
