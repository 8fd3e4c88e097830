//! Every policy for real: a Redis server, an engine, two shards and four workers as processes, one worker 2.5 times
//! slower; the digits job learns, and what the policy promises holds in the events in Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cluster;

use std::{collections::BTreeMap, fs, path::Path};

use cluster::{Cluster, number, runtime};
use syncline_engine::store::keys::JobKeys;
use syncline_scheduler::ids::JobId;
use syncline_workers::submit::{self, JobFile};

const STEP_MS: [u32; 4] = [4, 4, 4, 10];
const TRAINING_SAMPLES: u64 = 1_437;
const EPOCHS: u64 = 40;
/// What `examples/jobs/digits.toml` sets.
const BATCH: u64 = 32;

type Fields = BTreeMap<String, String>;

struct Trained {
    summary: Fields,
    /// Barriers that closed, oldest first.
    closed: Vec<Fields>,
    /// Records of the supersteps that are kept.
    spans: Vec<serde_json::Value>,
    /// Records of the workers, by incarnation.
    workers: BTreeMap<String, serde_json::Value>,
}

impl Trained {
    fn barriers(&self) -> u64 {
        number(&self.summary, "barriers")
    }

    /// Of each kept superstep with everybody in it: the batch of the slow worker, and the sum of all.
    fn batches(&self) -> Vec<(u64, u64)> {
        let slow = self.spans.iter().flat_map(|s| s["roster"].as_object().unwrap().keys());
        let slow = slow.clone().find(|w| self.name(w) == "w3").unwrap();
        let batches = |span: &serde_json::Value| {
            let roster = span["roster"].as_object().unwrap();
            let batch = |share: &serde_json::Value| share["batch"].as_u64().unwrap();
            (roster.len() == 4).then(|| (batch(&roster[slow]), roster.values().map(batch).sum()))
        };
        self.spans.iter().filter_map(batches).collect()
    }

    fn name(&self, incarnation: &str) -> &str {
        self.workers[&format!("w{incarnation}")]["name"].as_str().unwrap()
    }
}

/// Held for writing where speeds matter: several clusters at a time on two cores would make every worker slow.
static ALONE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// Trains the digits job of the examples under `policy`, while nothing else runs.
async fn train_alone(policy: &str, learning_rate: f32) -> Trained {
    let _alone = ALONE.write().await;
    train(policy, learning_rate, "'none'").await
}

/// The same beside others, with gradients that travel so: for what holds whatever the speeds are.
async fn train_beside_others(policy: &str, learning_rate: f32, compression: &str) -> Trained {
    let _beside_others = ALONE.read().await;
    train(policy, learning_rate, compression).await
}

async fn train(policy: &str, learning_rate: f32, compression: &str) -> Trained {
    let mut cluster = Cluster::start(2, 0, "").await;
    for (i, step_ms) in STEP_MS.iter().enumerate() {
        let worker = cluster.spawn_worker(&format!("--name w{i} --step-ms {step_ms}"));
        cluster.workers.push(worker);
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let text = fs::read_to_string(examples.join("jobs/digits.toml")).unwrap();
    let text = text
        .replace("\"../", &format!("\"{}/", examples.display()))
        .replace("\"elastic-bsp:15\"", &format!("\"{policy}\"\nmin_workers = 4\ncompression = {compression}"))
        .replace("learning_rate = 0.03", &format!("learning_rate = {learning_rate}"));
    let file = cluster.dir.path().join("digits.toml");
    fs::write(&file, text).unwrap();
    let prepared = submit::prepare(&runtime(), &JobFile::load(&file).unwrap()).unwrap();
    let job = prepared.spec.id.clone();
    let client = cluster.client();
    client.shards().await.unwrap();
    client.submit_prepared(prepared).await.unwrap();
    let summary = cluster.until_over(&job).await;

    assert_eq!(summary["state"], "done", "{policy}: {summary:?}");
    assert_eq!(number(&summary, "samples_applied"), TRAINING_SAMPLES * EPOCHS, "{policy}");
    let accuracy: f64 = summary["test_accuracy"].parse().unwrap();
    println!("{policy}: accuracy {accuracy}, {} barriers, lead {}", summary["barriers"], summary["max_lead"]);
    assert!(accuracy >= 0.95, "{policy}: {accuracy}");
    let trained = read(&cluster, &job, summary).await;
    let mut names: Vec<&str> = trained.workers.values().map(|w| w["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["w0", "w1", "w2", "w3"], "{policy}: everybody took part to the end");
    trained
}

async fn read(cluster: &Cluster, job: &JobId, summary: Fields) -> Trained {
    let keys = JobKeys::new(job);
    let entries: Vec<(String, Fields)> =
        cluster.store.query("read barriers", &["XRANGE", &keys.barriers, "-", "+"]).await.unwrap();
    let json = |records: Fields| -> BTreeMap<String, serde_json::Value> {
        records.into_iter().map(|(key, text)| (key, serde_json::from_str(&text).unwrap())).collect()
    };
    Trained {
        summary,
        closed: entries.into_iter().map(|(_, fields)| fields).collect(),
        spans: json(cluster.store.hash("read supersteps", &keys.supersteps).await.unwrap())
            .into_values()
            .collect(),
        workers: json(cluster.store.hash("read workers", &keys.workers).await.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bsp_gives_everybody_one_iteration_a_round() {
    let trained = train_beside_others("bsp", 0.1, "'none'").await;
    assert!(trained.closed.iter().all(|e| number(e, "iterations_most") <= 1));
    assert!(number(&trained.summary, "max_lead") <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn asp_meets_only_at_the_end() {
    let trained = train_alone("asp", 0.03).await;
    assert_eq!(trained.barriers(), 1);
    // The slow worker is named.
    let slow = trained.workers.values().find(|w| w["name"] == "w3").unwrap();
    assert!(slow["slow"]["factor"].as_f64().unwrap() > 1.3, "{slow}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ssp_keeps_its_bound() {
    let trained = train_beside_others("ssp:3", 0.03, "'none'").await;
    // A push comes one iteration after the start that is bounded.
    let lead = number(&trained.summary, "max_lead");
    assert!((1..=4).contains(&lead), "lead {lead}");
    assert_eq!(trained.barriers(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dssp_keeps_its_upper_bound_and_uses_more_than_its_lower_one() {
    let trained = train_alone("dssp:3:15", 0.03).await;
    let lead = number(&trained.summary, "max_lead");
    assert!((5..=16).contains(&lead), "lead {lead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_bsp_meets_where_it_planned() {
    let trained = train_alone("elastic-bsp:15", 0.03).await;
    assert!((5..300).contains(&trained.barriers()), "{}", trained.barriers());
    assert!(
        trained.closed.iter().any(|e| number(e, "iterations_most") > number(e, "iterations_least")),
        "workers of different speed do different numbers of iterations"
    );
    // From the end of watching on nobody goes further than the R predicted iterations.
    let planned = trained.spans.iter().filter(|s| !s["predicted"].as_array().unwrap().is_empty());
    let mut checked = 0;
    for span in planned {
        for row in span["predicted"].as_array().unwrap() {
            let (first, count) = (row["first_seq"].as_u64(), row["points"]["count"].as_u64());
            let last = span["roster"][row["worker"].to_string()]["last"].as_u64().unwrap();
            assert!(count <= Some(15) && last < first.unwrap() + count.unwrap(), "{span}");
            checked += 1;
        }
    }
    assert!(checked > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lb_bsp_gives_the_slow_worker_a_smaller_batch() {
    let trained = train_alone("lb-bsp+predictor=ema:0.2", 0.1).await;
    assert!(trained.closed.iter().all(|e| number(e, "iterations_most") <= 1));
    check_batches(&trained);
}

#[tokio::test(flavor = "multi_thread")]
async fn elastic_lb_meets_elastically_with_batches_by_speed() {
    let trained = train_alone("elastic-lb+predictor=ema:0.2", 0.03).await;
    assert!((5..300).contains(&trained.barriers()), "{}", trained.barriers());
    check_batches(&trained);
}

/// The total stays, and the slow worker's share is well below the others'.
fn check_batches(trained: &Trained) {
    let batches = trained.batches();
    assert!(batches.iter().all(|(_, all)| *all == 4 * BATCH), "{batches:?}");
    let smaller = batches.iter().filter(|(slow, _)| *slow < BATCH * 3 / 4).count();
    assert!(smaller * 2 > batches.len(), "{batches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_sgd_meets_after_its_steps() {
    let trained = train_beside_others("local-sgd:8", 0.1, "'none'").await;
    for event in &trained.closed {
        assert!(number(event, "iterations_most") <= 8, "{event:?}");
    }
    // 40 epochs of 45 batches in rounds of four times eight, and a rest.
    assert!((50..=70).contains(&trained.barriers()), "{}", trained.barriers());
}

#[tokio::test(flavor = "multi_thread")]
async fn diloco_meets_after_its_steps() {
    let trained = train_beside_others("diloco:8", 0.02, "'none'").await;
    assert!(trained.closed.iter().all(|e| number(e, "iterations_most") <= 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_says_why_and_settles_on_something_that_suits_a_slow_worker() {
    let trained = train_alone("auto+predictor=ema:0.2", 0.03).await;
    let rules: Vec<&str> = trained.closed.iter().map(|e| e["rule"].as_str()).collect();
    println!("{rules:?}");
    assert!(rules.contains(&"elastic-lb") || rules.contains(&"elastic-bsp"), "{rules:?}");
    for span in &trained.spans {
        assert!(!span["why"]["reason"].as_str().unwrap().is_empty());
        assert!(span["why"]["figures"]["bsp_wait_share"].is_number() || span["why"]["rule"] == "elastic-bsp");
    }
}

/// Every compression, over pushes that are steps, joined to a mean of gradients, or to a mean of changes of weights.
mod compressed {
    use super::train_beside_others;

    macro_rules! learns {
        ($($name:ident: $policy:expr, $rate:expr, $compression:expr;)*) => {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    train_beside_others($policy, $rate, $compression).await;
                }
            )*
        };
    }

    learns! {
        asp_learns_from_the_largest_of_gradients: "asp", 0.03, "{ top-k = 0.1 }";
        bsp_learns_from_gradients_in_eight_bits: "bsp", 0.1, "'int8'";
        elastic_bsp_learns_from_gradients_in_sixteen_bits: "elastic-bsp:15", 0.03, "'fp16'";
        lb_bsp_learns_from_gradients_in_bfloat16: "lb-bsp", 0.1, "'bf16'";
        local_sgd_learns_from_changes_in_eight_bits: "local-sgd:4", 0.1, "'int8'";
    }
}
