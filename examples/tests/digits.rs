//! The digits job as a user runs it, under every policy: accurate, complete, and bounded by its policy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{path::Path, time::Duration};

use syncline::{EventKind, JobPhase, JobView, Metric};
use syncline_engine::store::{RedisStore, keys::JobKeys};
use syncline_examples::{Run, digits};
use syncline_onnx as onnx;
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobFile},
    worker::Throttle,
};

const TRAINING_SAMPLES: u64 = 1_437;

async fn cluster(step_ms: u64) -> LocalCluster {
    let step = Duration::from_millis(step_ms);
    let workers = [1.0, 1.0, 1.0, 2.5].map(|slowdown| Throttle { step, slowdown }).to_vec();
    LocalCluster::start_with(LocalOptions { workers, ..LocalOptions::default() }, |line| eprintln!("{line}"))
        .await
        .unwrap()
}

async fn train(cluster: &LocalCluster, policy: &str, seed: u64) -> JobView {
    let id = policy.split(':').next().unwrap();
    let graph =
        digits::job(&Run { id, policy: policy.parse().unwrap(), epochs: digits::EPOCHS, seed, workers: 4 });
    let client = cluster.client();
    let id = client.submit(&graph).await.unwrap().id;
    client.wait(&id, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_bsp_learns_and_counts_every_sample_once() {
    let barriers = learns("elastic-bsp:15").await;
    assert!((5..300).contains(&barriers), "{barriers} barriers");
}

#[tokio::test(flavor = "multi_thread")]
async fn bsp_learns_and_counts_every_sample_once() {
    let barriers = learns("bsp").await;
    // 40 epochs in rounds of four workers; a round may begin the next epoch.
    assert!((400..=500).contains(&barriers), "{barriers} barriers");
}

#[tokio::test(flavor = "multi_thread")]
async fn asp_learns_and_counts_every_sample_once() {
    assert_eq!(learns("asp").await, 1);
}

/// Trains under `policy`, checks what holds under each, and returns the number of barriers.
async fn learns(policy: &str) -> u64 {
    let cluster = cluster(4).await;
    let store = RedisStore::connect(cluster.redis_url()).await.unwrap();
    let view = train(&cluster, policy, 1).await;
    assert_eq!(view.job.state, JobPhase::Done, "{policy}: {:?}", view.job);
    let accuracy = view.job.test[Metric::Accuracy].unwrap();
    assert!(accuracy >= 0.95, "{policy}: {accuracy}");
    assert_eq!(view.job.samples_applied, TRAINING_SAMPLES * u64::from(digits::EPOCHS), "{policy}");
    assert_eq!(view.job.test_samples, Some(360), "{policy}");
    check_spans(&store, &view, policy).await;
    cluster.stop().await.unwrap();
    view.job.barriers
}

/// What each kept superstep promised, from Redis.
async fn check_spans(store: &RedisStore, view: &JobView, policy: &str) {
    let keys = JobKeys::new(&view.job.id);
    let spans = store.hash("read supersteps", &keys.supersteps).await.unwrap();
    assert!(!spans.is_empty());
    for (n, text) in spans {
        let span: serde_json::Value = serde_json::from_str(&text).unwrap();
        for share in span["roster"].as_object().unwrap().values() {
            let done = share["last"].as_u64().unwrap() - share["base"].as_u64().unwrap();
            match policy {
                "bsp" => assert!(done <= 1, "superstep {n}: {text}"),
                "elastic-bsp:15" if !span["predicted"].as_array().unwrap().is_empty() => {
                    let row = &span["predicted"][0];
                    assert!(row["points"]["count"].as_u64().unwrap() <= 15, "superstep {n}: {text}");
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_file_describes_the_same_job() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cluster = cluster(0).await;
    let mut graph = JobFile::load(&root.join("jobs/digits.toml")).unwrap();
    let from_file = submit::prepare(cluster.runtime(), &graph).unwrap().spec;
    let policy = "elastic-bsp:15".parse().unwrap();
    let run = Run { id: "digits", policy, epochs: digits::EPOCHS, seed: 0, workers: 1 };
    let from_rust = digits::job(&run);
    let from_rust = submit::prepare(cluster.runtime(), &from_rust).unwrap().spec;
    let (mut file, mut rust) = (from_file.train().unwrap().1.clone(), from_rust.train().unwrap().1.clone());
    assert_eq!(file.data.digest.take(), rust.data.digest.take());
    file.data.source = rust.data.source.clone();
    assert_eq!(file, rust);

    graph.id = "from-file".into();
    let client = cluster.client();
    let id = client.submit(&graph).await.unwrap().id;
    client.wait(&id, |_| {}).await.unwrap();
    let weights = client.weights(&id).await.unwrap().tensors().unwrap();
    assert_eq!(weights["fc1.weight"].shape, [64, 256]);
    let curve = client.metrics(&id, None).await.unwrap();
    let (first, last) = (&curve[0], curve.last().unwrap());
    assert!(last.value.loss < first.value.loss, "{first:?} {last:?}");
    assert_eq!(client.metrics(&id, Some(first.cursor)).await.unwrap(), curve[1..]);
    let events = client.events(&id, None).await.unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|event| event.value.what).collect();
    assert_eq!((kinds[0], kinds.contains(&EventKind::WorkerJoined)), (EventKind::JobSubmitted, true));
    cluster.stop().await.unwrap();
}

#[test]
fn the_committed_model_is_the_one_that_the_example_builds() {
    let committed = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/digits.onnx")).unwrap();
    assert!(
        committed == onnx::mlp(&[64, 256, 10], 0).to_bytes(),
        "run `cargo run -p syncline-examples --example export-digits`"
    );
}
