//! Graphs in several parts, through a real engine, which take the place of another job.

use std::time::Duration;

use syncline_rpc::status::{JobPhase, JobStatus};
use syncline_scheduler::ids::JobId;
use syncline_workers::{
    client::{Client, Patience, TaskError},
    functions::{CallOptions, Function, TaskGraph, TaskHandle},
    local::{LocalCluster, LocalOptions},
};

const ADD: Function<(u64, u64), u64> = Function::new("add");
const LENGTH: Function<(Vec<u8>,), u64> = Function::new("length");

/// As many calls as a part may have: what follows travels in the next one.
const PART_TASKS: u64 = 20_000;

/// A job that is over, without workers: it was canceled.
async fn over(client: &Client, id: &str) -> JobStatus {
    let mut graph = TaskGraph::new(id);
    graph.call(ADD, (1, 2));
    let run = client.submit_tasks(&graph).await.unwrap();
    run.cancel().await.unwrap();
    run.wait(|_| ()).await.unwrap_err();
    status(client, run.id()).await
}

async fn status(client: &Client, id: &JobId) -> JobStatus {
    client.status(id).await.unwrap().job
}

/// A graph whose first part is full, and what is called behind it.
fn graph(id: &str, more: impl FnOnce(&mut TaskGraph, &[TaskHandle<u64>])) -> TaskGraph {
    let mut graph = TaskGraph::new(id);
    let calls = graph.map(ADD, (0..PART_TASKS).map(|n| (n, 0)));
    more(&mut graph, &calls);
    graph
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_only_for_a_graph_of_which_no_part_is_refused() {
    let cluster = LocalCluster::start(LocalOptions::workers(0)).await.unwrap();
    let client = cluster.client();
    let old = over(&client, "sums").await;
    let named = |name: &str| CallOptions::new().name(name);
    let twice = graph("sums", |graph, calls| {
        graph.call_with(&named("total"), ADD, (calls[0], calls[1]));
        graph.call_with(&named("total"), ADD, (calls[2], calls[3]));
    });
    let refused = client.replace_tasks(&twice).await.unwrap_err();
    assert_eq!(refused.code(), "E045", "{refused}");
    let there = status(&client, &old.id).await;
    assert_eq!((there.nonce, there.state), (old.nonce, JobPhase::Canceled), "the old job is still there");

    let sound = graph("sums", |graph, calls| {
        graph.call_with(&named("total"), ADD, (calls[0], calls[1]));
        graph.call(LENGTH, (vec![7; 1 << 20],));
    });
    let run = client.replace_tasks(&sound).await.unwrap();
    let there = status(&client, run.id()).await;
    assert!(run.is_new() && there.nonce != old.nonce && there.state == JobPhase::Running, "{there:?}");
    // One that goes on is not replaced, and nothing is uploaded for it once more.
    let again = client.replace_tasks(&sound).await.unwrap();
    assert!(!again.is_new());
    let other = graph("sums", |graph, calls| _ = graph.call(ADD, (calls[0], calls[1])));
    assert_eq!(client.replace_tasks(&other).await.unwrap_err().code(), "E140");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_of_a_graph_stays_where_a_shard_was_away_and_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions { shards: 1, state_dir: Some(dir.path().into()), ..LocalOptions::workers(0) };
    let cluster = LocalCluster::start(options).await.unwrap();
    let client = cluster.client();
    let large = graph("large", |graph, _| {
        graph.call(LENGTH, (vec![7; 1 << 20],));
    });
    // A disk that takes nothing.
    let blobs = dir.path().join("shard-0/blobs");
    let aside = dir.path().join("aside");
    std::fs::rename(&blobs, &aside).unwrap();
    std::fs::write(&blobs, "").unwrap();
    let hasty = client.clone().with_patience(Patience::all(Duration::ZERO));
    let prevented = hasty.submit_tasks(&large).await.unwrap_err();
    assert!(matches!(prevented, TaskError::Shard(_)), "{prevented}");
    let half_sent = status(&client, &"large".parse().unwrap()).await;
    assert_eq!(half_sent.state, JobPhase::Queued);

    std::fs::remove_file(&blobs).unwrap();
    std::fs::rename(&aside, &blobs).unwrap();
    let run = client.submit_tasks(&large).await.unwrap();
    let there = status(&client, run.id()).await;
    assert_eq!((there.nonce, there.state), (half_sent.nonce, JobPhase::Running));
    cluster.stop().await.unwrap();
}
