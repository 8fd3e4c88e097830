//! Two engines on one Redis server: whoever leads is found by everybody, however often the lead changes.

use std::{
    process::Output,
    time::{Duration, Instant},
};

use syncline::{Client, EngineAddresses, JobPhase, TaskGraph};
use syncline_engine::store::keys::{self, JobKeys};
use syncline_scheduler::ids::ShardIndex;

use crate::{
    cluster::{Cluster, Process, eventually, number},
    graphs::{STEP, function_worker_of},
    jobs::{check_exact, check_next_job_runs, counting, submit},
    replicas::followed,
    rig::command,
};

const SAMPLES: u64 = 6_000;

/// Two shards and two workers, beside whose engine another one stands by.
async fn with_standby() -> Cluster {
    Cluster::of(2, 2)
        .worker_flags("--step-ms 10 --slowdown 1")
        .standby_engine()
        .default_shard_silence()
        .start()
        .await
}

/// Stops an engine until the other one leads, then lets it go on.
async fn depose(cluster: &Cluster, engine: &Process, other: &str) {
    engine.signal("STOP");
    cluster.until_led_by(other).await;
    engine.signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lead_that_goes_to_the_standby_and_back_takes_shards_workers_and_clients_along() {
    let cluster = with_standby().await;
    let job = submit(&cluster, counting("led", "bsp", SAMPLES, |_| {})).await;
    let engines = [(&cluster.engine, "standby"), (&cluster.standby, "test")];
    for (n, (engine, other)) in (1..).zip(engines) {
        cluster.until(&job, |s| number(s, "samples_applied") > n * SAMPLES / 4).await;
        depose(&cluster, engine.as_ref().unwrap(), other).await;
        // It goes on under the other one.
        let before = number(&cluster.summary(&job).await, "samples_applied");
        cluster.until(&job, |s| number(s, "samples_applied") > before + 50).await;
        let state = cluster.client().status(&job).await.unwrap().job.state;
        assert_eq!(state, JobPhase::Running);
    }
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    check_next_job_runs(&cluster, "next").await;
    assert!(cluster.print("jobs").contains("next"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_hangs_for_ever_costs_its_jobs_nothing() {
    let cluster = with_standby().await;
    let job = submit(&cluster, counting("left", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    // Nobody is told that a connection was closed, as where the power of a machine is gone.
    cluster.engine.as_ref().unwrap().signal("STOP");
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    let workers = cluster.store.hash("read workers", &JobKeys::new(&job).workers).await.unwrap();
    assert_eq!(workers.len(), 2, "the same two go on under the engine that leads: {workers:?}");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_alone_is_cut_from_redis_is_left_by_everybody_for_the_one_that_leads() {
    let cluster = Cluster::of(2, 2)
        .worker_flags("--step-ms 10 --slowdown 1")
        .relayed_leader()
        .default_shard_silence()
        .start()
        .await;
    let job = submit(&cluster, counting("cut", "bsp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    cluster.relay().cut();
    cluster.until_led_by("standby").await;
    // The other one still answers, and is named first.
    let before = number(&cluster.summary(&job).await, "samples_applied");
    cluster.until(&job, |s| number(s, "samples_applied") > before + SAMPLES / 4).await;
    assert!(cluster.print("jobs").contains("cut"));
    cluster.relay().mend();
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    check_next_job_runs(&cluster, "next").await;
}

/// Each half has an engine and a process of the shard. The engine that led cannot know that the other one
/// leads by now: were its shard to go on alone, what it takes then would be lost once the other half lets the
/// standby serve.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_falls_apart_in_two_halves_loses_nothing_that_one_of_them_took() {
    let (cluster, links) = Cluster::of(1, 1)
        .worker_flags("--step-ms 10 --slowdown 1")
        .default_shard_silence()
        .start_split()
        .await;
    let job = submit(&cluster, counting("split", "asp", SAMPLES, |_| {})).await;
    followed(&cluster, &job, 0).await.unwrap();
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 8).await;
    let cut = [cluster.relay(), &links.second_engine, &links.standby];
    cut.iter().for_each(|link| link.cut());
    cluster.until_led_by("standby").await;
    // The second engine reaches its half.
    links.standby.mend();
    let second = links.standby.address().to_string();
    let shard = keys::shard(ShardIndex(0));
    eventually("the standby serves", async || {
        cluster.store.hash("read shard", &shard).await.unwrap().get("address") == Some(&second)
    })
    .await;
    cut.iter().for_each(|link| link.mend());
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    check_next_job_runs(&cluster, "next").await;
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_the_standby_alone_is_led_to_the_leader_and_finds_it_when_the_lead_has_changed() {
    let mut cluster = Cluster::of(1, 1).standby_engine().default_shard_silence().start().await;
    let job = submit(&cluster, counting("seen", "asp", 100, |_| {})).await;
    cluster.until_over(&job).await;
    let named = cluster.engines.clone();
    let (leader, standby) = named.split_once(',').unwrap();
    for (command, wanted) in [("jobs", "seen"), ("status seen", "seen (done)"), ("workers", "cpu")] {
        let answer = cluster.ask(standby, command);
        let said = text(&answer);
        assert!(answer.status.success() && said.contains(wanted), "{command}: {said}");
    }
    let said = text(&cluster.ask(standby, "doctor"));
    assert!(said.contains("on standby") && said.contains(leader), "{said}");
    assert!(!said.contains("start the missing"), "{said}");
    assert!(!said.contains("syncline worker"), "{said}");
    let (state, token) = (cluster.dir.path().join("another"), cluster.dir.path().join("token"));
    let [state, token] = [&state, &token].map(|path| path.to_str().unwrap());
    let shard = ["ps", "--engine", standby, "--token-file", token, "--state-dir", state];
    let refused = tokio::task::block_in_place(|| command(&shard).output().unwrap());
    let said = text(&refused);
    assert!(said.contains(&format!("[E425] shard 0 of the engine at {leader}, which leads, is")), "{said}");
    assert!(said.contains("a Redis database of its own"), "{said}");
    // Whoever names both gets an answer, in whatever order.
    for engines in [&cluster.engines, &format!("{standby},{leader}")] {
        let said = text(&cluster.ask(engines, "delete nothing"));
        assert!(said.contains("E131"), "a standby that answered first has deleted nothing: {said}");
        let said = text(&cluster.ask(engines, "doctor"));
        assert!(said.contains("on standby") && said.contains("ok    shards        1 of 1"), "{said}");
        assert!(text(&cluster.ask(engines, "status seen")).contains("seen (done)"), "{engines}");
        let both = Client::new(engines.parse::<EngineAddresses>().unwrap(), cluster.token.clone());
        let first = both.engine().await.unwrap();
        assert!(first.idle.is_none() && first.shards_present == 1 && first.now_ms.is_some(), "{first:?}");
    }
    // A worker and a client that know the standby alone, before and after it takes the lead.
    let _worker = function_worker_of(&cluster, standby);
    let alone = Client::new(standby.parse::<EngineAddresses>().unwrap(), cluster.token.clone());
    run_steps(&alone, "before").await;
    cluster.kill_engine();
    cluster.until_led_by("standby").await;
    run_steps(&alone, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_on_is_answered_by_the_standby_soon_after_the_leader_hangs() {
    let cluster = Cluster::of(1, 0).standby_engine().default_shard_silence().start().await;
    let limit = Duration::from_secs(2);
    let onlooker = Client::new(cluster.engines.parse::<EngineAddresses>().unwrap(), cluster.token.clone());
    let onlooker = onlooker.read_only(limit);
    onlooker.engine().await.unwrap();
    cluster.engine.as_ref().unwrap().signal("STOP");
    cluster.until_led_by("standby").await;
    let asked = Instant::now();
    let about = onlooker.engine().await.unwrap();
    assert!(about.idle.is_none() && onlooker.list_jobs(Some(0)).await.is_ok(), "{about:?}");
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
}

/// Runs a chain of calls.
async fn run_steps(client: &Client, id: &str) {
    let mut graph = TaskGraph::new(id);
    let one = graph.call(STEP, (1,));
    let two = graph.call(STEP, (one,));
    let job = client.submit_tasks(&graph).await.unwrap();
    assert_eq!(job.get(&two).await.unwrap(), 3);
}
