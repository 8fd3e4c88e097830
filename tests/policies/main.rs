//! Every policy for real: a Redis server, an engine, two shards and four workers as processes, one worker 2.5
//! times slower; the digits job learns, and what the policy promises holds in the events in Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../cluster/mod.rs"]
mod cluster;

// In the order of their names: whoever waits for all others holds up nobody that way.
mod alone;
mod beside_others;

use std::{collections::BTreeMap, fs, path::Path};

use cluster::{Cluster, number, runtime};
use syncline_engine::store::keys::JobKeys;
use syncline_scheduler::ids::JobId;
use syncline_workers::submit::{self, JobFile};

const STEP_MS: [u32; 4] = [4, 4, 4, 10];
/// The same where speeds matter, at first: whatever else this machine does has to be little beside it.
const SLOW_STEP_MS: [u32; 4] = [8, 8, 8, 20];
/// So many times as slow as each of the others the last one has to be, where speeds matter; it is to be 2.5
/// times as slow.
const LEAST_SLOWDOWN: f64 = 1.8;
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
    /// What people were told, oldest first.
    events: Vec<Fields>,
    /// Records of the workers, by incarnation.
    workers: BTreeMap<String, serde_json::Value>,
    /// Most pushes of others between a pull and its push.
    staleness_max: u64,
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

    /// How many times as long as the slowest of the others, on average, the slow worker took for a sample at
    /// least.
    fn slowdown(&self, step_ms: [u32; 4]) -> f64 {
        let us_per_sample = |worker: &serde_json::Value| {
            let spent = |what: &str| worker["spent"][what].as_u64().unwrap() as f64;
            let busy_us: f64 = ["compute_us", "pace_us", "pull_us", "push_us"].map(spent).iter().sum();
            busy_us / spent("samples")
        };
        let others = self.workers.values().filter(|worker| worker["name"] != "w3");
        let least_us_per_sample = f64::from(step_ms[3]) * 1_000.0 / BATCH as f64;
        least_us_per_sample / others.map(us_per_sample).fold(0.0, f64::max)
    }

    fn name(&self, incarnation: &str) -> &str {
        self.workers[&format!("w{incarnation}")]["name"].as_str().unwrap()
    }
}

/// Held for writing where speeds matter: several clusters at a time on two cores would make every worker
/// slow.
static ALONE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// Trains the digits job of the examples under `policy`, while nothing else runs. Where the machine made the
/// others as slow as the slow worker nothing follows from how they went, and all is done once more with
/// longer steps.
async fn train_alone(policy: &str, learning_rate: f32) -> Trained {
    let _alone = ALONE.write().await;
    let mut step_ms = SLOW_STEP_MS;
    loop {
        let trained = train(policy, learning_rate, "'none'", step_ms).await;
        let slowdown = trained.slowdown(step_ms);
        println!("{policy}: with steps of {step_ms:?} ms the slow worker is {slowdown:.2} times as slow");
        if slowdown > LEAST_SLOWDOWN {
            return trained;
        }
        step_ms = step_ms.map(|ms| 2 * ms);
    }
}

/// The same beside others, with gradients that travel so: for what holds whatever the speeds are.
async fn train_beside_others(policy: &str, learning_rate: f32, compression: &str) -> Trained {
    let _beside_others = ALONE.read().await;
    train(policy, learning_rate, compression, STEP_MS).await
}

async fn train(policy: &str, learning_rate: f32, compression: &str, step_ms: [u32; 4]) -> Trained {
    let mut cluster = Cluster::start(2, 0, "").await;
    // What is compressed is so for a network.
    let transport = if compression == "'none'" { "auto" } else { "tcp" };
    for (i, step_ms) in step_ms.iter().enumerate() {
        let about = format!("--name w{i} --step-ms {step_ms} --transport {transport}");
        let worker = cluster.spawn_worker(&about);
        cluster.workers.push(worker);
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").canonicalize().unwrap();
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
    let stream = async |key: &str| -> Vec<Fields> {
        let entries: Vec<(String, Fields)> =
            cluster.store.query("read stream", &["XRANGE", key, "-", "+"]).await.unwrap();
        entries.into_iter().map(|(_, fields)| fields).collect()
    };
    let json = |records: Fields| -> BTreeMap<String, serde_json::Value> {
        records.into_iter().map(|(key, text)| (key, serde_json::from_str(&text).unwrap())).collect()
    };
    Trained {
        summary,
        closed: stream(&keys.barriers).await,
        spans: json(cluster.store.hash("read supersteps", &keys.supersteps).await.unwrap())
            .into_values()
            .collect(),
        workers: json(cluster.store.hash("read workers", &keys.workers).await.unwrap()),
        events: stream(&keys.events).await,
        staleness_max: stream(&keys.metrics).await.iter().map(|p| number(p, "staleness_max")).max().unwrap(),
    }
}
