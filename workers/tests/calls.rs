//! General tasks through a real engine, Redis, shards, and workers with functions.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use syncline_rpc::status::JobPhase;
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::JobId,
    tasks::{MAX_INLINE_BYTES, TaskIndex, TaskState},
};
use syncline_workers::{
    client::{Cancellation, Client, GraphRun, TaskError},
    functions::{ArgumentError, CallOptions, Context, Function, Next, Registry, TaskGraph},
    local::{LocalCluster, LocalOptions},
    worker::{WorkerError, WorkerOptions, run},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Longer than anything takes that a test waits for.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

const ADD: Function<(u64, u64), u64> = Function::new("add");
const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");
const FIBONACCI: Function<(u64,), u64> = Function::new("fibonacci");
const SKIP: Function<(), u64> = Function::new("skip");
const FLAKY: Function<(u64,), u64> = Function::new("flaky");
const FILL: Function<(u8, u64), Vec<u8>> = Function::new("fill");
const LENGTH: Function<(Vec<u8>,), u64> = Function::new("length");
const PANIC: Function<(), u64> = Function::new("panic");
const ZONE: Function<(), String> = Function::new("zone");
const LATER: Function<(u64,), u64> = Function::new("later");
const FOREVER: Function<(), u64> = Function::new("forever");
const STUBBORN: Function<(), u64> = Function::new("stubborn");

const WAITS: Function<(), u64> = Function::new("waits");
const LOOKS: Function<(), u64> = Function::new("looks");
const LOSES: Function<(), u64> = Function::new("loses");

/// How many of `stubborn` and `looks` have begun: what is leased and has not begun is dropped when its job is
/// canceled.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// Set by a test that lets `stubborn` return.
static LET_GO: AtomicBool = AtomicBool::new(false);

/// Looks whether it is to stop.
fn forever(context: &Context) -> u64 {
    while !context.canceled() {
        thread::sleep(Duration::from_millis(5));
    }
    0
}

/// The same, and is counted.
fn looks(context: &Context) -> u64 {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    forever(context)
}

/// Set by a test that lets `waits` return.
static MAY_END: AtomicBool = AtomicBool::new(false);

/// Set once `loses` has begun.
static RUNS: AtomicBool = AtomicBool::new(false);

/// The last of a race.
fn loses(context: &Context) -> u64 {
    RUNS.store(true, Ordering::Relaxed);
    forever(context)
}

/// How many bytes `fill` makes behind it.
fn waits() -> u64 {
    while !MAY_END.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
    }
    3
}

/// Does not.
fn stubborn() -> u64 {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    while !LET_GO.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
    }
    1
}

fn fibonacci(context: &Context, n: u64) -> Result<Next<u64>, ArgumentError> {
    if n < 2 {
        return Ok(Next::Value(n));
    }
    let parts = context.map(FIBONACCI, [(n - 1,), (n - 2,)])?;
    Ok(Next::Of(context.call(SUM, (&parts,))?))
}

fn registry(zone: &'static str) -> Registry {
    let mut registry = Registry::new();
    registry.register(ADD, |a: u64, b: u64| a + b).unwrap();
    registry.register(SUM, |all: Vec<u64>| all.iter().sum::<u64>()).unwrap();
    registry.register(FIBONACCI, fibonacci).unwrap();
    registry.register(SKIP, || Next::<u64>::Skip).unwrap();
    let flaky = |context: &Context, good: u64| match u64::from(context.attempt()) {
        attempt if attempt >= good => Ok(attempt),
        attempt => Err(format!("attempt {attempt} fails")),
    };
    registry.register(FLAKY, flaky).unwrap();
    registry.register(FILL, |byte: u8, length: u64| vec![byte; length as usize]).unwrap();
    registry.register(LENGTH, |bytes: Vec<u8>| bytes.len() as u64).unwrap();
    registry.register(PANIC, || -> u64 { panic!("on purpose") }).unwrap();
    registry.register(ZONE, move || zone.to_owned()).unwrap();
    let later = async |ms: u64| {
        sleep(Duration::from_millis(ms)).await;
        ms
    };
    registry.register_async(LATER, later).unwrap();
    registry.register(FOREVER, forever).unwrap();
    registry.register(LOOKS, looks).unwrap();
    registry.register(LOSES, loses).unwrap();
    registry.register(STUBBORN, stubborn).unwrap();
    registry.register(WAITS, waits).unwrap();
    registry
}

/// Looks until there is what a test waits for.
async fn until<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let looks = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, looks).await.unwrap()
}

async fn eventually(is_so: impl AsyncFn() -> bool) {
    until(async || is_so().await.then_some(())).await;
}

/// A cluster with two workers that have functions, in zones a and b, and none that trains.
struct Rig {
    cluster: LocalCluster,
    client: Client,
    workers: Vec<(watch::Sender<bool>, Running)>,
}

/// A worker's task, which ends when it is told to.
type Running = JoinHandle<Result<(), WorkerError>>;

impl Rig {
    async fn start() -> Self {
        let options = LocalOptions::workers(0);
        let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
        let client = cluster.client();
        let mut rig = Self { cluster, client, workers: Vec::new() };
        rig.add_worker("a");
        rig.add_worker("b");
        rig
    }

    fn add_worker(&mut self, zone: &'static str) {
        let mut options = WorkerOptions::for_calls(self.cluster.cluster(), registry(zone));
        options.slots = 2;
        options.name = format!("calls-{zone}");
        options.labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        let (stop, stopped) = watch::channel(false);
        self.workers.push((stop, tokio::spawn(run(options, stopped))));
    }

    async fn submit(&self, graph: &TaskGraph) -> GraphRun {
        self.client.submit_tasks(graph).await.unwrap()
    }

    /// Waits until a job is over; its state, and the code of its failure.
    async fn end(&self, job: &JobId) -> (JobPhase, Option<String>) {
        until(async || {
            let jobs = self.client.jobs().await.unwrap();
            let status = jobs.into_iter().find(|status| status.id == *job).unwrap();
            status.state.is_over().then_some((status.state, status.code))
        })
        .await
    }

    /// Waits until a task is in a state.
    async fn until(&self, job: &JobId, task: u32, state: TaskState) -> String {
        until(async || {
            let view = self.client.task(job, TaskIndex(task)).await.unwrap();
            (view.state == state).then_some(view.reason)
        })
        .await
    }

    async fn stop(self) {
        for (stop, worker) in self.workers {
            stop.send_replace(true);
            worker.await.unwrap().unwrap();
        }
        self.cluster.stop().await.unwrap();
    }
}

const DONE: (JobPhase, Option<String>) = (JobPhase::Done, None);

#[tokio::test(flavor = "multi_thread")]
async fn many_values_come_in_the_order_of_their_tasks_and_one_that_fails_is_waited_for_by_nobody() {
    let rig = Rig::start().await;
    let mut graph = TaskGraph::new("many");
    let sums = graph.map(ADD, (0..100).map(|n| (n, 1)));
    let job = rig.submit(&graph).await;
    assert_eq!(job.get_all(&sums).await.unwrap(), (1..=100).collect::<Vec<u64>>());
    assert!(job.get_all::<u64>(&[]).await.unwrap().is_empty());

    let mut graph = TaskGraph::new("one-fails");
    let calls = [graph.call(FOREVER, ()), graph.call(PANIC, ())];
    let job = rig.submit(&graph).await;
    let failed = job.get_all(&calls).await.unwrap_err();
    assert_eq!(failed.code(), "E341");
    // Whether that one is found first, or the one that was canceled with it: both say what went wrong.
    assert!(failed.to_string().contains("panic panicked"), "{failed}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_as_tasks_end_and_who_has_enough_leaves() {
    let rig = Rig::start().await;
    let mut graph = TaskGraph::new("race");
    let loses = graph.call(LOSES, ());
    let fails = graph.call_with(&CallOptions::new().skip_dependents_on_failure(), PANIC, ());
    let sum = graph.call(ADD, (1, 2));
    let mut none = TaskGraph::new("larger");
    let beyond = none.map(ADD, [(0, 0); 4]).pop().unwrap();
    let job = rig.submit(&graph).await;
    let code = |gave: Result<u64, TaskError>| gave.map_err(|error| error.code().to_string());

    let mut completed = job.as_completed(&[loses, sum, fails, sum]).unwrap();
    assert_eq!(completed.remaining(), 4);
    let mut early = Vec::new();
    for _ in 0..3 {
        let next = completed.next().await.unwrap().unwrap();
        early.push((next.index, code(next.value)));
    }
    early.sort();
    assert_eq!(early, [(1, Ok(3)), (2, Err("E341".to_owned())), (3, Ok(3))]);
    assert_eq!(completed.remaining(), 1);
    // What has not begun gives nothing.
    eventually(async || RUNS.load(Ordering::Relaxed)).await;
    job.cancel().await.unwrap();
    let last = completed.next().await.unwrap().unwrap();
    assert_eq!((last.index, code(last.value)), (0, Ok(0)), "what it gives once it is told to stop");
    assert!(completed.next().await.unwrap().is_none());

    assert_eq!(job.as_completed(&[sum, beyond]).err().unwrap().code(), "E598");
    // Of the same graph, and added when it was submitted.
    let late = graph.map(ADD, [(0, 0); 4]).pop().unwrap();
    let unknown = job.as_completed(&[sum, late]).unwrap().next().await.unwrap_err();
    assert_eq!(unknown.code(), "E138");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_lost_is_told_of_its_task_and_keeps_no_other_back() {
    let rig = Rig::start().await;
    let mut graph = TaskGraph::new("one-is-lost");
    let large = graph.call(FILL, (7, 4 * MAX_INLINE_BYTES as u64));
    let waits = graph.call(WAITS, ());
    let small = graph.call(FILL, (1, waits));
    let job = rig.submit(&graph).await;
    rig.until(job.id(), 0, TaskState::Done).await;
    let blobs = || {
        let shards = (0..2).map(|index| rig.cluster.state_dir().join(format!("shard-{index}/blobs")));
        let files = shards.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten());
        let blobs = files.filter_map(|file| Some(file.ok()?.path()));
        let large = |path: &PathBuf| path.metadata().is_ok_and(|m| m.len() > MAX_INLINE_BYTES as u64);
        blobs.filter(large).collect::<Vec<_>>()
    };
    eventually(async || !blobs().is_empty()).await;
    blobs().iter().for_each(|path| std::fs::remove_file(path).unwrap());

    let mut completed = job.as_completed(&[large, small]).unwrap();
    let lost = completed.next().await.unwrap().unwrap();
    let error = lost.value.unwrap_err();
    assert_eq!((lost.index, error.code()), (0, FaultCode::new("E669")), "{error}");
    assert!(error.to_string().contains("task 0 of job one-is-lost is lost: [E404]"), "{error}");
    MAY_END.store(true, Ordering::Relaxed);
    let second = completed.next().await.unwrap().unwrap();
    assert_eq!((second.index, second.value.unwrap()), (1, vec![1; 3]));
    assert!(completed.next().await.unwrap().is_none());
    assert_eq!(job.get(&large).await.unwrap_err().code(), "E669");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_what_it_offers_and_a_file_that_is_no_model_is_named() {
    let rig = Rig::start().await;
    let both = async || rig.client.workers().await.unwrap();
    eventually(async || both().await.len() >= 2).await;
    for worker in both().await {
        assert_eq!((worker.slots, format!("calls-{}", worker.labels["zone"])), (2, worker.name));
        assert!(worker.functions.iter().any(|name| name == "fibonacci"), "{:?}", worker.functions);
    }
    let notes = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&notes, "not a model").unwrap();
    let refused = rig.client.upload_model(notes.path()).await.unwrap_err();
    assert_eq!(refused.code(), "E302");
    assert!(refused.to_string().ends_with(&format!(", in {}", notes.path().display())), "{refused}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graphs_give_what_their_functions_give() {
    let rig = Rig::start().await;

    let mut graph = TaskGraph::new("sums");
    let pairs = graph.map(ADD, (0..500).map(|n| (n, 1)));
    let total = graph.call(SUM, (&pairs,));
    let mut last = total;
    for _ in 0..200 {
        last = graph.call(ADD, (last, 1));
    }
    let job = rig.submit(&graph).await;
    assert_eq!(job.get(&last).await.unwrap(), 500 * 499 / 2 + 500 + 200);
    assert_eq!(rig.end(job.id()).await, DONE);

    let mut graph = TaskGraph::new("fibonacci");
    let fifteenth = graph.call(FIBONACCI, (15,));
    let job = rig.submit(&graph).await;
    assert_eq!(job.get(&fifteenth).await.unwrap(), 610);
    assert_eq!(rig.end(job.id()).await, DONE);

    let mut graph = TaskGraph::new("large");
    let bytes = MAX_INLINE_BYTES as u64 * 3;
    let filled = graph.call(FILL, (7, bytes));
    let lengths = [graph.call(LENGTH, (filled,)), graph.call(LENGTH, (vec![1u8; 100_000],))];
    let kept = graph.call(FILL, (8, bytes));
    let job = rig.submit(&graph).await;
    assert_eq!(job.get(&lengths[0]).await.unwrap(), bytes);
    assert_eq!(job.get(&lengths[1]).await.unwrap(), 100_000);
    assert_eq!(job.get(&kept).await.unwrap(), vec![8; bytes as usize]);
    assert_eq!(rig.end(job.id()).await, DONE);

    let mut graph = TaskGraph::new("places");
    let zone = |zone| CallOptions::new().label("zone", zone);
    let zones = ["a", "b", "a"].map(|name| (name, graph.call_with(&zone(name), ZONE, ())));
    let later = graph.map(LATER, [(20,), (10,), (0,)]);
    let job = rig.submit(&graph).await;
    for (name, task) in &zones {
        assert_eq!(job.get(task).await.unwrap(), *name);
    }
    assert_eq!(job.get(&later[0]).await.unwrap(), 20);
    assert_eq!(rig.end(job.id()).await, DONE);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_tried_again_skipped_or_told() {
    let rig = Rig::start().await;
    let quickly = Duration::from_millis(1);

    let mut graph = TaskGraph::new("retries");
    let retries = CallOptions::new().retries(3).backoff(quickly, quickly);
    let third = graph.call_with(&retries, FLAKY, (3,));
    // It is leased ahead to the worker that fails, and comes back.
    let next = graph.call(ADD, (third, 10));
    let job = rig.submit(&graph).await;
    assert_eq!(job.get(&next).await.unwrap(), 13);
    assert_eq!(rig.end(job.id()).await, DONE);

    let mut graph = TaskGraph::new("skips");
    let skipped = graph.call(SKIP, ());
    let needs = graph.call(ADD, (skipped, 1));
    let other = graph.call(SKIP, ());
    let after = graph.call_with(&CallOptions::new().after(&other), ADD, (1, 2));
    let gives_up = CallOptions::new().skip_dependents_on_failure();
    let failed = graph.call_with(&gives_up, PANIC, ());
    let after_failed = graph.call_with(&CallOptions::new().after(&failed), ADD, (3, 4));
    let job = rig.submit(&graph).await;
    assert_eq!(job.get(&after).await.unwrap(), 3);
    assert_eq!(job.get(&after_failed).await.unwrap(), 7);
    assert!(job.get(&needs).await.unwrap_err().to_string().starts_with("[E341]"));
    assert_eq!(rig.end(job.id()).await, DONE);
    let reason = rig.until(job.id(), 4, TaskState::Failed).await;
    assert!(reason.contains("[E441] panic panicked at ") && reason.ends_with("on purpose"), "{reason}");

    let mut graph = TaskGraph::new("fails");
    graph.call(FLAKY, (9,));
    let job = rig.submit(&graph).await;
    assert_eq!(rig.end(job.id()).await, (JobPhase::Failed, Some("E440".into())));

    let mut graph = TaskGraph::new("too-long");
    graph.call_with(&CallOptions::new().run_limit(Duration::from_millis(30)), FOREVER, ());
    graph.call_with(&CallOptions::new().run_limit(Duration::from_millis(30)), LATER, (1_000_000,));
    let job = rig.submit(&graph).await;
    assert_eq!(rig.end(job.id()).await, (JobPhase::Failed, Some("E443".into())));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_canceled_gives_its_slots_back() {
    let rig = Rig::start().await;
    let mut graph = TaskGraph::new("forever");
    graph.map(FOREVER, [(); 8].map(|()| ()));
    let job = rig.submit(&graph).await;
    for task in 0..4 {
        rig.until(job.id(), task, TaskState::Leased).await;
    }
    job.cancel().await.unwrap();
    let mut graph = TaskGraph::new("next");
    let sums = graph.map(ADD, [(1, 1); 16]);
    let job = rig.submit(&graph).await;
    for sum in &sums {
        assert_eq!(job.get(sum).await.unwrap(), 2);
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_job_waits_for_what_runs_as_long_as_it_is_told_to() {
    let rig = Rig::start().await;
    let mut graph = TaskGraph::new("stubborn");
    let named = graph.call_with(&CallOptions::new().name("looks"), LOOKS, ());
    graph.call(STUBBORN, ());
    let job = rig.submit(&graph).await;
    eventually(async || BEGUN.load(Ordering::Relaxed) >= 2).await;
    let patient = Cancellation::new().reason("too dear").grace(Duration::from_secs(3_600));
    rig.client.cancel_with(job.id(), &patient).await.unwrap();
    assert_eq!(job.get(&named).await.unwrap(), 0, "it looked, and what it gave counts");
    let view = rig.client.status(job.id()).await.unwrap().job;
    assert_eq!((view.state, view.reason.as_deref()), (JobPhase::Canceling, Some("too dear")));
    assert_eq!(view.waiting_for.as_deref(), Some("1 tasks that were told to stop"));
    let reason = rig.until(job.id(), 1, TaskState::Leased).await;
    assert!(reason.contains("was told to stop it, because the job is canceled"), "{reason}");
    let stopping =
        async || rig.client.workers().await.unwrap().iter().map(|worker| worker.stopping).sum::<u32>();
    eventually(async || stopping().await == 1).await;

    rig.client.cancel_with(job.id(), &Cancellation::new().grace(Duration::ZERO)).await.unwrap();
    let ended = job.wait(|_| ()).await.unwrap_err();
    assert_eq!(ended.to_string(), "[E507] job stubborn was canceled: too dear");
    let reason = rig.until(job.id(), 1, TaskState::Canceled).await;
    assert_eq!(reason, "the job was canceled before it could end: too dear");
    assert_eq!(stopping().await, 1, "its worker still says so");
    LET_GO.store(true, Ordering::Relaxed);
    eventually(async || stopping().await == 0).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_no_worker_can_begin_in_time_fails_and_the_rest_goes_on() {
    let rig = Rig::start().await;
    eventually(async || rig.client.workers().await.unwrap().len() >= 2).await;
    let impatient = CallOptions::new()
        .label("zone", "c")
        .queue_limit(Duration::from_millis(100))
        .retries(3)
        .skip_dependents_on_failure();
    let mut graph = TaskGraph::new("impatient");
    let nobodys = graph.call_with(&impatient, ADD, (1, 1));
    graph.call(ADD, (nobodys, 1));
    // One that a worker has does not wait for one, however long it takes.
    let runs_longer = CallOptions::new().queue_limit(Duration::from_millis(100)).label("zone", "a");
    let later = graph.call_with(&runs_longer, LATER, (300,));
    let job = rig.submit(&graph).await;
    assert_eq!(job.get(&later).await.unwrap(), 300);
    assert_eq!(rig.end(job.id()).await, DONE);
    let reason = rig.until(job.id(), 0, TaskState::Failed).await;
    let why = "it failed: [E060] nobody has begun it within 0.1 s: no worker that has `add` has 1 slot and label zone=c";
    assert_eq!(reason, why);
    rig.until(job.id(), 1, TaskState::Skipped).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_ends_what_it_runs_and_others_do_the_rest() {
    let mut rig = Rig::start().await;
    let mut graph = TaskGraph::new("slow");
    let slow = graph.map(LATER, (0..40).map(|_| (25,)));
    let job = rig.submit(&graph).await;
    rig.until(job.id(), 3, TaskState::Done).await;
    let (stop, worker) = rig.workers.remove(0);
    stop.send_replace(true);
    worker.await.unwrap().unwrap();
    for task in &slow {
        assert_eq!(job.get(task).await.unwrap(), 25);
    }
    assert_eq!(rig.end(job.id()).await, DONE);
    rig.stop().await;
}
