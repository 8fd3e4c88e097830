//! Workers come and go, Redis goes away and comes back, a job is canceled: nobody waits forever.

use std::{collections::BTreeMap, path::Path};

use syncline::EventKind;
use syncline_engine::store::keys::{self, JobKeys};
use syncline_scheduler::{
    core::{Member, Membership},
    ids::JobId,
};
use syncline_workers::submit;

use crate::{
    cluster::{Cluster, eventually, number, runtime},
    counting,
};

const SAMPLES: u64 = 4_000;

async fn submit(cluster: &Cluster, id: &str, policy: &str, epochs: u32) -> JobId {
    let graph = counting::job(id, policy.parse().unwrap(), SAMPLES, 10, epochs, 0);
    let prepared = submit::prepare(&runtime(), &graph).unwrap();
    let job = prepared.spec.id.clone();
    let client = cluster.client();
    client.shards().await.unwrap();
    client.submit_prepared(prepared).await.unwrap();
    job
}

async fn members(cluster: &Cluster, job: &JobId) -> BTreeMap<String, Member> {
    let records = cluster.store.hash("read workers", &JobKeys::new(job).workers).await.unwrap();
    records.into_iter().map(|(w, json)| (w, serde_json::from_str(&json).unwrap())).collect()
}

/// One test for each policy, so that they run beside each other.
macro_rules! under_each_policy {
    ($what:ident: $($name:ident $policy:literal)+) => {
        mod $what {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    super::$what($policy).await;
                }
            )+
        }
    };
}

under_each_policy! { the_others_go_on_when_a_worker_is_killed:
    bsp "bsp"
    elastic_bsp "elastic-bsp:15"
    ssp "ssp:2"
    dssp "dssp:1:6"
    elastic_lb "elastic-lb"
    local_sgd "local-sgd:4"
}

async fn the_others_go_on_when_a_worker_is_killed(policy: &str) {
    let mut cluster = Cluster::start(2, 3, "--step-ms 3 --slowdown 1").await;
    let job = submit(&cluster, "survivors", policy, 2).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 2 && number(s, "workers") == 3).await;
    cluster.workers[1].kill();
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{policy}: {summary:?}");
    assert_eq!(number(&summary, "epochs_complete"), 2, "{policy}");
    let gone = members(&cluster, &job).await.values().filter(|m| m.membership == Membership::Gone).count();
    assert_eq!(gone, 1, "{policy}");
}

under_each_policy! { a_worker_that_comes_later_takes_part:
    bsp "bsp"
    elastic_bsp "elastic-bsp:15"
    asp "asp"
    ssp "ssp:2"
    lb_bsp "lb-bsp"
    diloco "diloco:4"
    auto "auto"
}

async fn a_worker_that_comes_later_takes_part(policy: &str) {
    let mut cluster = Cluster::start(2, 1, "--step-ms 3 --slowdown 1").await;
    let job = submit(&cluster, "joiner", policy, 2).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    let late = cluster.spawn_worker("--step-ms 3 --slowdown 1 --name late");
    cluster.workers.push(late);
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{policy}: {summary:?}");
    let members = members(&cluster, &job).await;
    let late = members.values().find(|m| m.about.name == "late").unwrap();
    let events = cluster.client().events(&job, None).await.unwrap();
    let prepared = events.iter().filter(|event| event.value.what == EventKind::WorkerPrepared).count();
    assert_eq!(prepared, 1, "{policy}: it shows first that it can, {events:?}");
    assert!(late.spent.iterations > 20, "{policy}: only {} iterations", late.spent.iterations);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_frees_workers_that_are_blocked_at_a_barrier() {
    let mut cluster = Cluster::start(2, 1, "--step-ms 3 --slowdown 1").await;
    // Ten seconds a step: the fast worker waits at the barrier for it.
    let slow = cluster.spawn_worker("--step-ms 10000 --slowdown 1 --name slow");
    cluster.workers.push(slow);
    // Both are there, so that both are in the first round.
    cluster.until_there(|ids| ids.len() == 2).await;
    let job = submit(&cluster, "stuck", "bsp", 1).await;
    cluster.until(&job, |s| number(s, "iterations_done") >= 1).await;
    let fast = members(&cluster, &job).await.into_iter().find(|(_, m)| m.spent.iterations > 0).unwrap().0;
    let record = keys::worker(fast.parse().unwrap());
    eventually("the fast worker says that it waits for the barrier", async || {
        let fields = cluster.store.hash("read worker", &record).await.unwrap();
        fields.get("blocked_on").is_some_and(|blocked_on| blocked_on == "barrier/0")
    })
    .await;
    cluster.client().cancel(&job).await.unwrap();
    assert_eq!(cluster.until_over(&job).await["state"], "canceled");
    cluster.workers[1].kill();
    let next = submit(&cluster, "next", "asp", 1).await;
    assert_eq!(cluster.until_over(&next).await["state"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_outlives_a_redis_that_goes_away_and_comes_back() {
    let mut cluster = Cluster::start(2, 2, "--step-ms 3 --slowdown 1").await;
    let job = submit(&cluster, "outage", "elastic-bsp:15", 2).await;
    let before = cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 2).await;
    // Stopped cleanly, so that its append-only file is complete.
    cluster.restart_redis(|_| {});
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert!(number(&summary, "samples_applied") > number(&before, "samples_applied"));
    assert_eq!(number(&summary, "epochs_complete"), 2);
    let counts = counting::counts(Path::new(&summary["snapshot"]));
    let done = number(&summary, "iterations_done");
    assert_eq!(number(&summary, "iterations_torn"), 0);
    assert!(counts.iter().all(|&n| n == done), "{done} done, weights from {:?}", counts.iter().min());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_while_redis_stands_still_is_waited_for_by_nobody() {
    let mut cluster = Cluster::start(1, 2, "--step-ms 3 --slowdown 1").await;
    let job = submit(&cluster, "left", "bsp", 2).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4 && number(s, "workers") == 2).await;
    let mut worker = cluster.workers.remove(0);
    cluster.restart_redis(|_| {
        worker.signal("TERM");
        worker.wait();
    });
    let summary = cluster.until_over(&job).await;
    assert_eq!((summary["state"].as_str(), number(&summary, "epochs_complete")), ("done", 2), "{summary:?}");
}
