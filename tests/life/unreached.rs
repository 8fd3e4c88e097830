//! A network that is cut between workers and the process that serves a shard, which the engine and the other
//! process still reach.

use std::collections::BTreeMap;

use syncline::EventKind;
use syncline_engine::store::keys;
use syncline_scheduler::ids::{JobId, ShardIndex};

use crate::{
    cluster::{Cluster, eventually, number},
    jobs::{check_exact, counting, notes, submit},
    replicas::followed,
};

const SAMPLES: u64 = 20_000;
const SHORT: u64 = 3_000;
/// Over shared memory nothing could be cut.
const WORKER: &str = "--transport tcp --step-ms 20 --slowdown 1";

async fn serves(cluster: &Cluster) -> Option<String> {
    let shard: BTreeMap<String, String> =
        cluster.store.hash("read shard", &keys::shard(ShardIndex(0))).await.unwrap();
    shard.get("address").cloned()
}

/// Waits until people are told this of the process at `address`, or it serves no more: on a machine that
/// sleeps for seconds the other one may take over for that.
async fn until_told(cluster: &Cluster, job: &JobId, address: &str, words: [&str; 2]) {
    eventually(&format!("{words:?} is told"), async || {
        let told = notes(&cluster.client(), job).await.unwrap();
        let is_told = |note: &String| note.contains(address) && words.iter().all(|word| note.contains(word));
        told.iter().any(is_told) || serves(cluster).await.is_some_and(|at| at != address)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_no_worker_reaches_is_served_by_its_standby_and_one_that_alone_does_not_is_named() {
    let (mut cluster, relays) = Cluster::of(1, 0).start_behind_relays::<2>().await;
    for name in ["near", "far"] {
        let worker = cluster.spawn_worker(&format!("{WORKER} --name {name}"));
        cluster.workers.push(worker);
    }
    let job = submit(&cluster, counting("cut", "asp", SAMPLES, |_| {})).await;
    let (primary, _) = followed(&cluster, &job, 0).await.unwrap();
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 20).await;
    let relay = relays.iter().find(|relay| relay.address().to_string() == primary).unwrap();
    let [near, far] = [0, 1].map(|n| cluster.workers[n].pid());
    relay.cut_off(far);
    until_told(&cluster, &job, &primary, ["worker far", "unlike others"]).await;
    relay.cut_off(near);
    eventually("the standby serves", async || serves(&cluster).await.is_some_and(|at| at != primary)).await;
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    let events = cluster.client().events(&job, None).await.unwrap();
    assert!(events.iter().any(|event| event.value.what == EventKind::ShardTakenOver), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_whose_workers_do_not_reach_a_shard_without_a_standby_says_so_and_goes_on_when_they_do() {
    let (mut cluster, [relay]) = Cluster::of(1, 0).default_shard_silence().start_behind_relays().await;
    let worker = cluster.spawn_worker(&format!("{WORKER} --name only"));
    let job = submit(&cluster, counting("alone", "bsp", SHORT, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    let primary = relay.address().to_string();
    relay.cut_off(worker.pid());
    cluster.workers.push(worker);
    eventually("the problem is shown", async || {
        let problem = cluster.client().status(&job).await.unwrap().job.problem.unwrap_or_default();
        [&*primary, "no worker reaches", "only (w", "it has no standby"]
            .iter()
            .all(|word| problem.contains(word))
    })
    .await;
    relay.mend();
    check_exact(&cluster.until_over(&job).await, SHORT);
}
