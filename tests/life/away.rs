//! Programs whose engine or Redis is away for a while: calls that were made meanwhile are answered
//! afterwards.

use std::time::Duration;

use syncline::{Client, JobId, JobNews, JobPhase, TaskGraph, TaskQuery};
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, number, send_signal},
    graphs::{STEP, function_worker},
    jobs::{check_exact, counting, submit},
};

/// Longer than somebody at a keyboard is kept waiting.
const ENGINE_AWAY: Duration = Duration::from_secs(22);
const REDIS_AWAY: Duration = Duration::from_secs(8);

/// Every call that a program makes of a training that runs, and of a graph of its own; all at the same time.
async fn every_call(client: Client, training: JobId) {
    let job = &training;
    let steps = async {
        let mut graph = TaskGraph::new("steps");
        let one = graph.call(STEP, (1,));
        let two = graph.call(STEP, (one,));
        let steps = client.submit_tasks(&graph).await.unwrap();
        assert_eq!(steps.get(&two).await.unwrap(), 3);
        assert_eq!(client.tasks(steps.id(), &TaskQuery::default()).await.unwrap().len(), 2);
    };
    let asked = async {
        let train = "train".parse().unwrap();
        let (jobs, workers, status, events, metrics, explained, shards, gone) = tokio::join!(
            client.jobs(),
            client.workers(),
            client.status(job),
            client.events(job, None),
            client.metrics(job, None),
            client.explain_task(job, &train),
            client.shards(),
            client.gc(Duration::from_secs(3_600)),
        );
        assert!(jobs.unwrap().iter().any(|known| known.id == *job));
        assert!(!workers.unwrap().is_empty() && !events.unwrap().is_empty());
        assert_eq!(status.unwrap().job.id, *job);
        assert!(metrics.is_ok() && explained.is_ok() && gone.is_ok());
        assert_eq!(shards.unwrap().len(), 1);
    };
    let watched = async {
        let first = client.watch(job, None).next().await.unwrap();
        assert!(matches!(first, Some(JobNews::Event(_))), "{first:?}");
    };
    let paused = async {
        client.pause(job).await.unwrap();
        client.resume(job).await.unwrap();
    };
    tokio::join!(steps, asked, watched, paused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_boots_before_redis_waits_for_it_and_goes_on_with_the_jobs() {
    let mut cluster = Cluster::start(1, 1, "--step-ms 5 --slowdown 1").await;
    let job = submit(&cluster, counting("night", "asp", 2_000, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 200).await;
    cluster.kill_engine();
    cluster.start_engine_before_redis();
    check_exact(&cluster.until_over(&job).await, 2_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_a_program_outlives_an_engine_and_a_redis_that_are_away() {
    let mut cluster = Cluster::start(1, 1, "--step-ms 5 --slowdown 1").await;
    let _functions = function_worker(&cluster);
    let job = submit(&cluster, counting("trains", "bsp", 10_000_000, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 0).await;
    let client = cluster.client();
    client.engine().await.unwrap();

    cluster.kill_engine();
    let calls = tokio::spawn(every_call(client.clone(), job.clone()));
    sleep(ENGINE_AWAY).await;
    assert!(!calls.is_finished(), "{:?}", calls.await);
    cluster.start_engine();
    calls.await.unwrap();

    send_signal(cluster.redis.pid(), "STOP");
    let calls = tokio::spawn(every_call(client.clone(), job.clone()));
    sleep(REDIS_AWAY).await;
    assert!(!calls.is_finished(), "{:?}", calls.await);
    send_signal(cluster.redis.pid(), "CONT");
    calls.await.unwrap();

    cluster.kill_engine();
    let ending = tokio::spawn({
        let (client, job) = (client.clone(), job.clone());
        async move { client.cancel(&job).await }
    });
    cluster.start_engine();
    ending.await.unwrap().unwrap();
    assert_eq!(cluster.until_over(&job).await["state"], JobPhase::Canceled.word());
    client.delete(&job).await.unwrap();
}
