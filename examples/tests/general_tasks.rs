//! The examples of general tasks as a user runs them: a cluster, two workers and a client, each a process of
//! its own but for engine and shards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../tests/waiting/mod.rs"]
mod waiting;

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use syncline::{JobId, JobPhase, LocalCluster, LocalOptions, Metric, worker::Throttle};
use syncline_examples::{Run, digits, integral};
use syncline_workers::client::token_file;
use waiting::eventually;

/// A program that talks to the cluster.
fn program(path: &str, cluster: &LocalCluster) -> Command {
    let mut command = Command::new(path);
    command.env("SYNCLINE_ENGINE", cluster.cluster().engines.to_string());
    command.env("SYNCLINE_TOKEN_FILE", token_file(cluster.state_dir()));
    command
}

struct Worker(Child);

impl Worker {
    fn start(cluster: &LocalCluster) -> Self {
        let mut command = program(env!("CARGO_BIN_EXE_task-worker"), cluster);
        Self(command.args(["--slots", "2"]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn cluster() -> (LocalCluster, [Worker; 2]) {
    let cluster = cluster_that_trains(0).await;
    let workers = [Worker::start(&cluster), Worker::start(&cluster)];
    (cluster, workers)
}

/// A cluster with so many workers that train.
async fn cluster_that_trains(workers: usize) -> LocalCluster {
    let workers = vec![Throttle::default(); workers];
    let options = LocalOptions { workers, shards: 2, ..LocalOptions::default() };
    LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap()
}

/// Runs a client to its end and gives what it printed.
async fn client(path: &str, cluster: &LocalCluster, args: Vec<String>) -> String {
    let mut command = program(path, cluster);
    let run = move || command.args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    let ended = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(ended.status.success(), "{:?}", ended.status);
    String::from_utf8(ended.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_many_files_are_counted_as_one_would_by_hand() {
    let (cluster, _workers) = cluster().await;
    let novel = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/moby-dick.txt");
    let text = fs::read_to_string(novel).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let files = lines.chunks(lines.len().div_ceil(20)).enumerate().map(|(index, lines)| {
        let path = dir.path().join(format!("{index}.txt"));
        fs::write(&path, lines.join("\n")).unwrap();
        path.display().to_string()
    });
    let printed = client(env!("CARGO_BIN_EXE_words"), &cluster, files.collect()).await;

    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    let mut ranking: Vec<_> = counts.iter().map(|(word, n)| (std::cmp::Reverse(*n), word)).collect();
    ranking.sort_unstable();
    let expected = ranking.iter().take(10).map(|(n, word)| format!("{:>8} {word}\n", n.0));
    assert_eq!(printed, expected.collect::<String>());
    cluster.stop().await.unwrap();
}

#[test]
fn every_client_says_how_it_is_used() {
    let programs = [
        env!("CARGO_BIN_EXE_classify"),
        env!("CARGO_BIN_EXE_integral"),
        env!("CARGO_BIN_EXE_sweep"),
        env!("CARGO_BIN_EXE_words"),
    ];
    for program in programs {
        let helped = Command::new(program).arg("--help").output().unwrap();
        let told = String::from_utf8(helped.stdout).unwrap();
        assert!(helped.status.success() && told.contains("Usage: "), "{program}: {told}");
        // Without arguments none has anything to do.
        let bare = Command::new(program).output().unwrap();
        let told = String::from_utf8(bare.stderr).unwrap();
        assert!(bare.status.code() == Some(2) && told.contains("Usage: "), "{program}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integral_grows_tasks_until_it_is_exact_enough() {
    let (cluster, _workers) = cluster().await;
    let args = ["0", "1", "1e-9"].map(str::to_owned);
    let printed = client(env!("CARGO_BIN_EXE_integral"), &cluster, args.to_vec()).await;
    let (value, tasks) = printed.trim().split_once(" by ").unwrap();
    assert!((value.parse::<f64>().unwrap() - 2.0 / 3.0).abs() < 1e-8, "{printed}");
    // A task either gives a value, or adds three: the number of tasks tells that the graph grew, and by whole
    // steps.
    let tasks: u64 = tasks.trim_end_matches(" tasks").parse().unwrap();
    assert!(tasks > 100 && (tasks - 1).is_multiple_of(3), "{printed}");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_trains_with_every_rate_and_goes_on_with_the_better_half() {
    let cluster = cluster_that_trains(2).await;
    let _functions = Worker::start(&cluster);
    let rates = ["1e-6", "0.03", "1e-5", "1000"].map(str::to_owned);
    let printed = client(env!("CARGO_BIN_EXE_sweep"), &cluster, rates.to_vec()).await;
    let (rate, rest) = printed.split_once(": accuracy ").unwrap();
    let (accuracy, job) = rest.split_once(", weights of job ").unwrap();
    assert_eq!(rate, "0.03");
    assert!(accuracy.parse::<f64>().unwrap() > 0.9, "{printed}");

    // Four trainings of one epoch, two of two, one of four: each a job that can be looked at, after the graph
    // has ended too.
    let client = cluster.client();
    let jobs = client.jobs().await.unwrap();
    let mut epochs: Vec<_> =
        jobs.iter().filter(|job| job.id.as_str().starts_with("sweep~")).map(|job| job.epochs).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, [1, 1, 1, 1, 2, 2, 4]);
    assert!(jobs.iter().all(|job| job.state == JobPhase::Done), "{jobs:?}");
    let best: JobId = job.trim().parse().unwrap();
    assert!(client.weights(&best).await.is_ok());

    // They go with the graph.
    client.delete(&"sweep".parse().unwrap()).await.unwrap();
    assert!(client.jobs().await.unwrap().is_empty());
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_was_trained_here_classifies_as_well_as_its_test_said() {
    let cluster = cluster_that_trains(2).await;
    let run = Run { id: "digits", policy: "bsp".parse().unwrap(), epochs: 8, seed: 1, workers: 2 };
    let trainer = cluster.client();
    let id = trainer.submit(&digits::job(&run)).await.unwrap().id;
    let tested = trainer.wait(&id, |_| {}).await.unwrap().job.test[Metric::Accuracy].unwrap();
    let printed = client(env!("CARGO_BIN_EXE_classify"), &cluster, vec!["digits".to_owned()]).await;
    let right: f64 = printed.split(' ').next().unwrap().parse().unwrap();
    assert!(tested > 0.9 && (right - tested * 360.0).abs() < 1.5, "{tested}, {printed}");
    assert_eq!(printed, format!("{right} of 360 images are classified right, by 8 tasks\n"));
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_are_killed_cost_no_result() {
    const JOBS: usize = 4;
    const KILLS: u64 = 5;
    let (cluster, workers) = cluster().await;
    let client = cluster.client();
    let mut jobs = Vec::new();
    for job in 0..JOBS {
        let (graph, integral) = integral::graph(&format!("integral-{job}"), 0.0, 1.0, 1e-13);
        jobs.push((client.submit_tasks(&graph).await.unwrap(), integral));
    }
    let done = async || -> u64 {
        let jobs = client.jobs().await.unwrap();
        jobs.iter().filter_map(|job| job.tasks.as_ref()).map(|tasks| tasks.done).sum()
    };
    let mut workers = VecDeque::from(workers);
    for kill in 1..=KILLS {
        let enough = kill * 200;
        eventually(&format!("{enough} tasks are done"), async || done().await >= enough).await;
        drop(workers.pop_front());
        workers.push_back(Worker::start(&cluster));
    }
    for (run, integral) in jobs {
        assert!((run.get(&integral).await.unwrap() - 2.0 / 3.0).abs() < 1e-12);
        run.wait(|_| {}).await.unwrap();
    }
    cluster.stop().await.unwrap();
}
