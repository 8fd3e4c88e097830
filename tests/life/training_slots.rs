//! One worker that trains for several jobs at the same time.

use std::collections::BTreeSet;

use syncline::{JobId, TaskGraph, TrainingChanges};

use crate::{
    cluster::{Cluster, number},
    jobs::{check_exact, check_next_job_runs, counting, submit},
};

const SAMPLES: u64 = 3_000;
/// More than it trains while a test runs.
const ENDLESS: u64 = 10_000_000;

async fn trains_on(cluster: &Cluster, job: &JobId, samples: u64) {
    let before = number(&cluster.summary(job).await, "samples_applied");
    cluster.until(job, |summary| number(summary, "samples_applied") > before + samples).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_train_on_one_worker_at_the_same_time_and_the_end_of_one_is_nothing_to_the_other() {
    let cluster = Cluster::start(2, 1, "--trainings 2 --slots 3 --step-ms 5 --slowdown 1").await;
    let canceled = submit(&cluster, counting("canceled", "bsp", ENDLESS, |_| {})).await;
    let other = submit(&cluster, counting("other", "asp", ENDLESS, |_| {})).await;
    // Neither can end, so both train now.
    trains_on(&cluster, &canceled, 100).await;
    trains_on(&cluster, &other, 100).await;
    trains_on(&cluster, &canceled, 100).await;

    let slots = cluster.client().workers().await.unwrap();
    assert_eq!(slots.iter().map(|slot| slot.training_slot).collect::<BTreeSet<_>>(), [1, 2].into());
    assert_eq!(slots.iter().map(|slot| slot.pid).collect::<BTreeSet<_>>().len(), 1, "{slots:?}");
    assert_eq!(cluster.client().engine().await.unwrap().workers, 1);

    let third = submit(&cluster, counting("third", "bsp", SAMPLES, |_| {})).await;
    let waits = &cluster.until(&third, |summary| summary.contains_key("waiting_for")).await["waiting_for"];
    assert!(waits.contains("1 that are there with 2 training slots 0 slots are idle"), "{waits}");
    let client = cluster.client();
    let workers_of_other = || async {
        let view = client.status(&other).await.unwrap();
        view.workers.iter().map(|worker| worker.id.to_string()).collect::<Vec<_>>()
    };
    let before = workers_of_other().await;
    client.cancel(&canceled).await.unwrap();
    check_exact(&cluster.until_over(&third).await, SAMPLES);
    trains_on(&cluster, &other, 100).await;
    assert_eq!(workers_of_other().await, before, "it has kept its slot");
    client.cancel(&other).await.unwrap();
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_four_trainings_on_one_worker_is_exact_though_the_worker_is_killed_in_the_middle() {
    let flags = "--trainings 4 --step-ms 5 --slowdown 1";
    let mut cluster = Cluster::start(2, 1, flags).await;
    let client = cluster.client();
    client.shards().await.unwrap();
    let training = client.upload_training(counting("unnamed", "ssp:3", SAMPLES, |_| {})).await.unwrap();
    let mut graph = TaskGraph::new("sweep");
    let trained: Vec<_> = (0..4).map(|_| graph.train(&training, TrainingChanges::new())).collect();
    let sweep = client.submit_tasks(&graph).await.unwrap();
    for task in 0..4 {
        let begun = |summary: &_| number(summary, "samples_applied") > SAMPLES / 10;
        cluster.until(&sweep.id().of_training(task, 1), begun).await;
    }
    cluster.workers[0].kill();
    cluster.workers[0] = cluster.spawn_worker(flags);
    assert_eq!(cluster.until_over(sweep.id()).await["state"], "done");
    for task in &trained {
        let trained = sweep.get(task).await.unwrap();
        assert!(!trained.job.as_str().ends_with("-2"), "its first attempt has outlived the worker");
        check_exact(&cluster.summary(&trained.job).await, SAMPLES);
    }
}
