//! Jobs in a queue: each gets its turn without anybody touching the cluster.

use crate::{
    cluster::{Cluster, number},
    jobs::{check_exact, counting, submit},
};

/// Samples of a job that goes on until it is canceled.
const ENDLESS: u64 = 10_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_jobs_in_a_queue_drain() {
    let cluster = Cluster::start(1, 2, "").await;
    let prepared = ["asp", "bsp", "elastic-bsp:5"].map(|policy| counting("job", policy, 40, |_| {}));
    let mut jobs = Vec::new();
    for n in 0..50 {
        let mut next = prepared[n % 3].clone();
        next.spec.id = format!("job-{n}").parse().unwrap();
        jobs.push(submit(&cluster, next).await);
    }
    for job in &jobs {
        check_exact(&cluster.until_over(job).await, 40);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_a_job_leaves_over_serve_the_next_and_a_queued_job_says_what_it_waits_for() {
    let cluster = Cluster::start(1, 2, "--step-ms 20 --slowdown 1").await;
    let long = submit(&cluster, counting("long", "asp", ENDLESS, |s| s.max_workers = 1)).await;
    cluster.until(&long, |s| s.get("state").is_some_and(|s| s == "running")).await;
    let short = submit(&cluster, counting("short", "asp", 50, |_| {})).await;
    check_exact(&cluster.until_over(&short).await, 50);
    let both = submit(&cluster, counting("both", "asp", 50, |s| s.min_workers = 2)).await;
    let waits = |s: &std::collections::BTreeMap<String, String>| {
        s.get("waiting_for").is_some_and(|w| w == "2 workers: of 2 that are there 1 are idle, 1 serve `long`")
    };
    cluster.until(&both, waits).await;
    let told = cluster.client().explain_task(&both, &"train".parse().unwrap()).await.unwrap();
    assert!(told.reasons[0].contains("2 workers"), "{told:?}");
    assert!(number(&cluster.summary(&long).await, "samples_applied") < ENDLESS);
    cluster.client().cancel(&long).await.unwrap();
    check_exact(&cluster.until_over(&both).await, 50);
}
