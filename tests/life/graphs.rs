//! Graphs of calls and trainings through accidents of engine, workers and Redis: every value is what one
//! would find by hand, and every training counts each of its samples once.

use std::{env, fs, path::Path, process::Command, thread, time::Duration};

use syncline::{
    ArgumentError, CallOptions, Cancellation, Cluster as ClusterAddress, EngineAddresses, Function, GraphRun,
    PreparedTraining, RUN_MODEL, TaskError, TaskFailure, TaskGraph, TaskHandle, Tensor, Token, Trained,
    TrainingChanges,
    worker::{Context, Next, Worker, WorkerBuilder, run},
};
use syncline_onnx::mlp;
use syncline_scheduler::samples::splitmix64;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cluster::{Cluster, Process, number},
    jobs::{check_exact, counting},
};

pub const STEP: Function<(u64,), u64> = Function::new("life.step");
pub const SUM: Function<(Vec<u64>,), u64> = Function::new("life.sum");
/// Numbers that are too many to pass the engine.
pub const COUNT_UP: Function<(u64,), Vec<u64>> = Function::new("life.count_up");
pub const INCREASE: Function<(Vec<u64>,), Vec<u64>> = Function::new("life.increase");
const LEAVES: Function<(u64,), u64> = Function::new("life.leaves");
pub const HOLD: Function<(String, u64), u64> = Function::new("life.hold");
pub const ATTEMPT: Function<(String,), u64> = Function::new("life.attempt");
pub const TELL: Function<(Vec<Result<u64, TaskFailure>>,), Vec<String>> = Function::new("life.tell");
pub const DETACH: Function<(String,), String> = Function::new("life.detach");

pub const STEPS: u64 = 300;
const CHAIN: u64 = 60;
const DEPTH: u64 = 5;
const SAMPLES: u64 = 1_500;
const TRAINS: &str = "--step-ms 5 --slowdown 1";

fn step(n: u64) -> u64 {
    thread::sleep(Duration::from_millis(5));
    n + 1
}

fn leaves(context: &Context, depth: u64) -> Result<Next<u64>, ArgumentError> {
    if depth == 0 {
        return Ok(Next::Value(step(0)));
    }
    let halves = vec![context.call(LEAVES, (depth - 1,))?, context.call(LEAVES, (depth - 1,))?];
    Ok(Next::Of(context.call(SUM, (&halves,))?))
}

/// Returns when there is the file `go`, whatever it is told. Until then, a file of its number says that it
/// has begun: a disk that is slow to write makes no call long that does not wait.
fn hold(folder: String, number: u64) -> u64 {
    let folder = Path::new(&folder);
    let is_to_go = || folder.join("go").exists();
    if !is_to_go() {
        fs::write(folder.join(format!("began-{number}")), "").unwrap();
    }
    while !is_to_go() {
        thread::sleep(Duration::from_millis(5));
    }
    7
}

/// Says by a file of its attempt that it has begun, and returns the attempt when there is the file
/// `end-ATTEMPT`.
fn attempt(context: &Context, folder: String) -> u64 {
    let (folder, attempt) = (Path::new(&folder), context.attempt());
    fs::write(folder.join(format!("began-{attempt}")), "").unwrap();
    while !folder.join(format!("end-{attempt}")).exists() {
        thread::sleep(Duration::from_millis(5));
    }
    attempt.into()
}

/// Values, and of failures the code and the attempts.
fn tell(outcomes: Vec<Result<u64, TaskFailure>>) -> Vec<String> {
    let told = |outcome| match outcome {
        Ok(value) => format!("{value}"),
        Err(TaskFailure { code: Some(code), attempts, .. }) => format!("{code} after {attempts}"),
        Err(TaskFailure { reason, .. }) => reason,
    };
    outcomes.into_iter().map(told).collect()
}

/// The graph that [`DETACH`] submits: a task that waits for the end of the test, and one behind it.
fn detached(folder: &str) -> TaskGraph {
    let mut graph = TaskGraph::new("detached");
    let held = graph.call(HOLD, (folder.to_owned(), 0));
    graph.call_with(&CallOptions::new().name("last"), STEP, (held,));
    graph
}

/// Submits a job that outlives it, and goes on as [`attempt`] does.
fn detach(context: &Context, folder: String) -> Result<String, TaskError> {
    let job = context.submit_tasks(&detached(&folder))?;
    attempt(context, folder);
    Ok(job.id().to_string())
}

/// Where the processes of [`function_worker`] find their engines and their token.
const ENGINES: &str = "SYNCLINE_TEST_ENGINES";
const TOKEN_FILE: &str = "SYNCLINE_TEST_TOKEN_FILE";

/// A worker with the functions of this file.
fn functions() -> WorkerBuilder {
    Worker::builder()
        .register(STEP, step)
        .register(SUM, |all: Vec<u64>| all.iter().sum::<u64>())
        .register(COUNT_UP, |length: u64| (0..length).collect::<Vec<_>>())
        .register(INCREASE, |all: Vec<u64>| all.iter().map(|n| n + 1).collect::<Vec<_>>())
        .register(LEAVES, leaves)
        .register(HOLD, hold)
        .register(ATTEMPT, attempt)
        .register(TELL, tell)
        .register(DETACH, detach)
        .slots(2)
}

/// A process with the functions of this file: this program once more, for one of its tests.
pub fn function_worker(cluster: &Cluster) -> Process {
    function_worker_of(cluster, &cluster.engines)
}

/// The same, with engines that it is told to be elsewhere.
pub fn function_worker_of(cluster: &Cluster, engines: &str) -> Process {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "graphs::the_workers_of_this_file_have_its_functions"]);
    command.env(ENGINES, engines).env(TOKEN_FILE, cluster.dir.path().join("token"));
    Process::of(&mut command)
}

/// In a process of [`function_worker`] it goes on as such a worker.
#[test]
fn the_workers_of_this_file_have_its_functions() {
    let Ok(engines) = env::var(ENGINES) else {
        let nowhere = ClusterAddress { engines: "127.0.0.1:1".parse().unwrap(), token: Token::generate() };
        let options = functions().options(nowhere).unwrap();
        let ids = options.registry.ids();
        let names: Vec<_> = ids.iter().map(|id| id.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "life.attempt",
                "life.count_up",
                "life.detach",
                "life.hold",
                "life.increase",
                "life.leaves",
                "life.step",
                "life.sum",
                "life.tell"
            ]
        );
        return;
    };
    let token = env::var(TOKEN_FILE).unwrap();
    let address = ClusterAddress {
        engines: engines.parse::<EngineAddresses>().unwrap(),
        token: Token::load_or_create(token.as_ref()).unwrap(),
    };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let worker = run(functions().options(address).unwrap(), stopped);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.spawn(async move {
        signal(SignalKind::terminate()).unwrap().recv().await;
        stop.send_replace(true);
    });
    runtime.block_on(worker).unwrap();
}

/// What a graph of this file must give.
pub struct Expected {
    pub job: GraphRun,
    total: TaskHandle<u64>,
    trained: Vec<TaskHandle<Trained>>,
}

impl Expected {
    /// Steps that are added up, a chain, a tree that grows, and so many trainings.
    pub async fn submit(cluster: &Cluster, id: &str, training: Option<(&PreparedTraining, usize)>) -> Self {
        let often = CallOptions::new().crash_retries(1_000);
        let mut graph = TaskGraph::new(id);
        let mut all = graph.map_with(&often, STEP, (0..STEPS).map(|n| (n,)));
        let mut last = graph.call_with(&often, STEP, (0,));
        for _ in 1..CHAIN {
            last = graph.call_with(&often, STEP, (last,));
        }
        all.push(last);
        all.push(graph.call_with(&often, LEAVES, (DEPTH,)));
        let total = graph.call_with(&often, SUM, (&all,));
        let (prepared, times) = training.unzip();
        let train = |_| graph.train(prepared.unwrap(), TrainingChanges::new());
        let trained = (0..times.unwrap_or(0)).map(train).collect();
        let job = cluster.client().submit_tasks(&graph).await.unwrap();
        Self { job, total, trained }
    }

    pub async fn check(&self, cluster: &Cluster) {
        let summary = cluster.until_over(self.job.id()).await;
        assert_eq!(summary["state"], "done", "{summary:?}");
        let total = (1..=STEPS).sum::<u64>() + CHAIN + (1 << DEPTH);
        assert_eq!(self.job.get(&self.total).await.unwrap(), total);
        for task in &self.trained {
            let trained = self.job.get(task).await.unwrap();
            assert_eq!(trained.samples, SAMPLES);
            check_exact(&cluster.summary(&trained.job).await, SAMPLES);
        }
    }
}

async fn prepared(cluster: &Cluster, policy: &str) -> PreparedTraining {
    let client = cluster.client();
    client.shards().await.unwrap();
    client.upload_training(counting("unnamed", policy, SAMPLES, |_| {})).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_of_engine_and_workers_change_no_value_of_a_graph_that_calls_and_trains() {
    const KILLS: u64 = 20;
    let seed = 20_261_122;
    println!("seed {seed}");
    let mut random = seed;
    let mut draw = |below: u64| splitmix64(&mut random) % below;
    let mut cluster = Cluster::start(2, 2, TRAINS).await;
    let mut functions = [function_worker(&cluster), function_worker(&cluster)];
    let training = prepared(&cluster, "elastic-bsp:15").await;
    let first = Expected::submit(&cluster, "first", Some((&training, 2))).await;
    let second = Expected::submit(&cluster, "second", None).await;
    let ended = |summary: &std::collections::BTreeMap<String, String>| number(summary, "tasks_done");
    for kill in 0..KILLS {
        // By progress: at first of the calls, and when those are done of the trainings.
        let before = ended(&cluster.summary(second.job.id()).await);
        if before < STEPS {
            let enough = (before + draw(STEPS / KILLS)).min(STEPS);
            cluster.until(second.job.id(), |summary| ended(summary) >= enough).await;
        } else {
            tokio::time::sleep(Duration::from_millis(draw(300))).await;
        }
        match kill % 4 {
            0 | 2 => {
                cluster.kill_engine();
                cluster.start_engine();
            }
            1 => functions[draw(2) as usize] = function_worker(&cluster),
            _ => {
                let victim = draw(2) as usize;
                cluster.workers[victim].kill();
                cluster.workers[victim] = cluster.spawn_worker(TRAINS);
            }
        }
    }
    first.check(&cluster).await;
    second.check(&cluster).await;
    // The day after: the same name again, with what it trained before gone.
    cluster.client().delete(first.job.id()).await.unwrap();
    Expected::submit(&cluster, "first", Some((&training, 1))).await.check(&cluster).await;
}

/// The workers that train have room for a model again.
async fn check_models_run(cluster: &Cluster, id: &str) {
    let client = cluster.client();
    let model = client.upload_model(mlp(&[3, 2], 1).to_bytes()).await.unwrap();
    let mut graph = TaskGraph::new(id);
    let batch = Tensor::new([1, 3], vec![0.0f32; 3]).unwrap();
    let scores: Vec<_> = (0..4).map(|_| graph.call(RUN_MODEL, (model, vec![batch.clone()]))).collect();
    let run = client.submit_tasks(&graph).await.unwrap();
    let summary = cluster.until_over(run.id()).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!(run.get(&scores[3]).await.unwrap()[0].shape(), [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_runs_models_again_when_its_training_has_ended_and_its_engine_was_killed_meanwhile() {
    let mut cluster = Cluster::start(2, 1, TRAINS).await;
    let training = prepared(&cluster, "asp").await;
    let client = cluster.client();
    let mut graph = TaskGraph::new("quiet");
    graph.train(&training, TrainingChanges::new());
    let graph = client.submit_tasks(&graph).await.unwrap();
    cluster
        .until(&graph.id().of_training(0, 1), |summary| number(summary, "samples_applied") > SAMPLES / 3)
        .await;
    // It waits for the only slot of the worker.
    check_models_run(&cluster, "models").await;
    let mut graph = TaskGraph::new("restarted");
    graph.train(&training, TrainingChanges::new());
    let graph = client.submit_tasks(&graph).await.unwrap();
    cluster
        .until(&graph.id().of_training(0, 1), |summary| number(summary, "samples_applied") > SAMPLES / 3)
        .await;
    cluster.kill_engine();
    cluster.start_engine();
    assert_eq!(cluster.until_over(graph.id()).await["state"], "done");
    check_models_run(&cluster, "models-restarted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_goes_on_under_the_other_engine_with_its_trainings() {
    let cluster =
        Cluster::of(1, 1).worker_flags(TRAINS).standby_engine().default_shard_silence().start().await;
    let _functions = [function_worker(&cluster), function_worker(&cluster)];
    let training = prepared(&cluster, "bsp").await;
    let graph = Expected::submit(&cluster, "led", Some((&training, 2))).await;
    cluster.until(graph.job.id(), |summary| number(summary, "tasks_done") > STEPS / 3).await;
    cluster.engine.as_ref().unwrap().signal("STOP");
    graph.check(&cluster).await;
    cluster.engine.as_ref().unwrap().signal("CONT");
    Expected::submit(&cluster, "next", Some((&training, 1))).await.check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still_or_forgets_all_costs_a_graph_nothing() {
    let cluster = Cluster::start(1, 1, TRAINS).await;
    let _functions = [function_worker(&cluster), function_worker(&cluster)];
    let training = prepared(&cluster, "asp").await;
    let graph = Expected::submit(&cluster, "stalled", Some((&training, 1))).await;
    cluster.until(graph.job.id(), |summary| number(summary, "tasks_done") > STEPS / 4).await;
    crate::cluster::send_signal(cluster.redis.pid(), "STOP");
    tokio::time::sleep(Duration::from_secs(6)).await;
    crate::cluster::send_signal(cluster.redis.pid(), "CONT");
    let before = number(&cluster.summary(graph.job.id()).await, "tasks_done");
    cluster.until(graph.job.id(), |summary| number(summary, "tasks_done") > before).await;
    let _: String = cluster.store.query("lose", &["FLUSHALL"]).await.unwrap();
    graph.check(&cluster).await;
    Expected::submit(&cluster, "next", Some((&training, 1))).await.check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_engine_dies_while_it_is_canceled_ends_under_the_next_when_what_runs_has_ended() {
    let mut cluster = Cluster::start(1, 0, TRAINS).await;
    let _functions = function_worker(&cluster);
    let folder = cluster.dir.path().to_owned();
    let mut graph = TaskGraph::new("held");
    let held = [("first", 0), ("second", 1)].map(|(name, number)| {
        let named = CallOptions::new().name(name);
        graph.call_with(&named, HOLD, (folder.display().to_string(), number))
    });
    graph.call(SUM, (&held.to_vec(),));
    let (client, job) = (cluster.client(), cluster.client().submit_tasks(&graph).await.unwrap());
    // What has a lease and has not begun would be told to stop before it begins.
    cluster.until(job.id(), |_| [0, 1].iter().all(|n| folder.join(format!("began-{n}")).exists())).await;
    let patient = Cancellation::new().reason("enough").grace(Duration::from_secs(3_600));
    client.cancel_with(job.id(), &patient).await.unwrap();
    cluster.kill_engine();
    cluster.start_engine();
    let summary = cluster.summary(job.id()).await;
    assert_eq!((&*summary["state"], &*summary["reason"]), ("canceling", "enough"));
    assert_eq!(number(&summary, "tasks_canceled"), 1, "what waited for the other two");
    fs::write(folder.join("go"), "").unwrap();
    let summary = cluster.until_over(job.id()).await;
    assert_eq!((&*summary["state"], &*summary["reason"]), ("canceled", "enough"));
    assert_eq!(number(&summary, "tasks_done"), 2);
    assert_eq!(job.get(&held[1]).await.unwrap(), 7, "what came in time counts");
    let ended = job.wait(|_| ()).await.unwrap_err().to_string();
    assert_eq!(ended, "[E507] job held was canceled: enough");
}
