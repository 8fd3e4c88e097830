//! Trainings that somebody pauses: others have the workers meanwhile, and every sample is counted once in the
//! end.

use syncline_scheduler::spec::{CheckpointSpec, TrainSpec};

use crate::{
    cluster::{Cluster, number},
    jobs::{check_exact, check_next_job_runs, counting, submit},
};

/// A training that is to be found in its middle has long to go then.
const SAMPLES: u64 = 12_000;
const STORMY_EPOCH: u64 = 300;
const WORKER: &str = "--step-ms 3 --slowdown 1";

/// Pauses a job in the middle, and waits until its workers are gone.
async fn pause_in_the_middle(cluster: &Cluster, policy: &str) -> syncline::JobId {
    let job = submit(cluster, counting("paused", policy, SAMPLES, |_| {})).await;
    cluster.until(&job, |summary| number(summary, "samples_applied") > SAMPLES / 20).await;
    cluster.client().pause(&job).await.unwrap();
    let rests = cluster.until(&job, |summary| number(summary, "workers") == 0).await;
    assert!(rests["waiting_for"].contains("`syncline resume paused`"), "{rests:?}");
    assert_eq!(rests["state"], "paused", "{rests:?}");
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_training_lets_another_run_and_goes_on_exactly() {
    let cluster = Cluster::start(2, 2, WORKER).await;
    let job = pause_in_the_middle(&cluster, "elastic-bsp:15").await;
    let before = number(&cluster.summary(&job).await, "samples_applied");
    check_next_job_runs(&cluster, "urgent").await;
    assert_eq!(number(&cluster.summary(&job).await, "samples_applied"), before, "it rests");
    cluster.client().resume(&job).await.unwrap();
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    let events = cluster.print("events paused");
    assert!(events.contains("paused") && events.contains("resumed"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_the_engine_and_the_shards() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let job = pause_in_the_middle(&cluster, "bsp").await;
    cluster.kill_engine();
    cluster.start_engine();
    cluster.restart_shard(0, || {});
    check_next_job_runs(&cluster, "urgent").await;
    assert_eq!(number(&cluster.summary(&job).await, "workers"), 0, "it is still paused");
    cluster.client().resume(&job).await.unwrap();
    check_exact(&cluster.until_over(&job).await, SAMPLES);
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_while_checkpoints_are_taken_lose_nothing() {
    let cluster = Cluster::start(2, 2, WORKER).await;
    let client = cluster.client();
    let often = CheckpointSpec::every_epochs(1).keep(1);
    let changed = |train: &mut TrainSpec| (train.epochs, train.checkpoint) = (40, Some(often));
    let job = submit(&cluster, counting("stormy", "elastic-bsp:15", STORMY_EPOCH, changed)).await;
    for epoch in (2..30).step_by(3) {
        cluster.until(&job, |summary| number(summary, "epochs_complete") >= epoch).await;
        // About when the shards copy.
        client.pause(&job).await.unwrap();
        client.resume(&job).await.unwrap();
    }
    check_exact(&cluster.until_over(&job).await, 40 * STORMY_EPOCH);
}
