//! What a program does with jobs of general tasks: submits, waits, fetches values, and meets refusals.
//! Engine, shards and worker are real.

use std::{
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use syncline::{
    CallOptions, Cancellation, EventKind, Function, JobEvent, TaskError, TaskGraph, TaskIndex, TaskQuery,
    TaskState,
    worker::{Context, FunctionError, Next, Worker},
};

use crate::{function_cluster::FunctionCluster, waiting::until};

const NEXT: Function<(u64,), u64> = Function::new("next");
const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");
const REVERSE: Function<(Vec<u8>,), Vec<u8>> = Function::new("reverse");
const BLANK: Function<(u64,), Vec<u8>> = Function::new("blank");
const JOIN: Function<(Vec<Vec<u8>>,), u64> = Function::new("join");
const FAIL: Function<(), u64> = Function::new("fail");
const REFUSE: Function<(), u64> = Function::new("refuse");
const SKIP: Function<(), u64> = Function::new("skip");
const LONG: Function<(), u64> = Function::new("long");

/// Says how far it is, and goes on until somebody stops it.
fn long(context: &Context) -> Result<u64, String> {
    context.report_progress(1, 4, "begun");
    while !context.canceled() {
        thread::sleep(Duration::from_millis(1));
    }
    Err("it was told to stop".to_owned())
}

/// A cluster with the functions of this file.
async fn start() -> FunctionCluster {
    let functions = Worker::builder()
        .register(NEXT, |n: u64| n + 1)
        .register(SUM, |all: Vec<u64>| all.iter().sum::<u64>())
        .register(REVERSE, |bytes: Vec<u8>| bytes.into_iter().rev().collect::<Vec<u8>>())
        .register(BLANK, |bytes: u64| vec![0u8; bytes as usize])
        .register(JOIN, |all: Vec<Vec<u8>>| all.iter().map(|bytes| bytes.len() as u64).sum::<u64>())
        .register(FAIL, || Err::<u64, _>("it always does"))
        .register(REFUSE, || Err::<u64, _>(FunctionError::no_retry("it is of no use")))
        .register(SKIP, || Next::<u64>::Skip)
        .register(LONG, long);
    FunctionCluster::start(0, functions).await
}

/// The code that an error begins with.
fn code(error: &TaskError) -> String {
    error.to_string()[1..5].to_owned()
}

#[test]
fn the_test_that_the_documents_show_is_one_that_runs() {
    let shown = include_str!("../../docs/tasks.md").contains(include_str!("documented_test.rs"));
    assert!(shown, "docs/tasks.md shows another test than tests/jobs/documented_test.rs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_a_worker_whose_future_is_dropped_is_told_to_stop() {
    let (tell, told) = mpsc::channel();
    let untold = move |context: &Context| {
        tell.send("begun").unwrap();
        let ended = long(context);
        tell.send("stopped").unwrap();
        ended
    };
    let cluster = FunctionCluster::start(0, Worker::builder().register(LONG, untold)).await;
    let mut graph = TaskGraph::new("dropped");
    graph.call(LONG, ());
    cluster.client.submit_tasks(&graph).await.unwrap();
    let heard = tokio::task::spawn_blocking(move || (told.recv(), told)).await.unwrap();
    assert_eq!(heard.0, Ok("begun"));
    cluster.drop_worker();
    let ended = tokio::task::spawn_blocking(move || heard.1.recv()).await.unwrap();
    assert_eq!(ended, Ok("stopped"));
    cluster.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_of_several_parts_with_large_values_gives_what_it_should() {
    let cluster = start().await;
    let client = &cluster.client;
    let mut graph = TaskGraph::new("large");
    let numbers = graph.map(NEXT, (0..45_000).map(|n| (n,)));
    let kept = graph.map_with(&CallOptions::new().keep_value(), NEXT, (0..3).map(|n| (n,)));
    let of_kept = graph.call(SUM, (&kept,));
    let sums: Vec<_> = numbers.chunks(1_000).map(|some| graph.call(SUM, (some,))).collect();
    let total = graph.call(SUM, (&sums,));
    // Above what travels inline, as a constant and as a value.
    let bytes: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    let reversed = graph.call(REVERSE, (bytes.clone(),));
    let again = graph.call_with(&CallOptions::new().name("again"), REVERSE, (reversed,));

    let run = client.submit_tasks(&graph).await.unwrap();
    assert_eq!(run.get(&total).await.unwrap(), 45_000 * 45_001 / 2);
    assert_eq!(run.get(&again).await.unwrap(), bytes);
    let done = run.wait(|_| {}).await.unwrap().job.tasks.unwrap();
    assert_eq!((done.total, done.done), (45_052, 45_052));
    assert_eq!(run.get(&of_kept).await.unwrap(), 6);
    assert_eq!(run.get_all(&kept).await.unwrap(), [1, 2, 3]);
    assert_eq!(code(&run.get(&numbers[7]).await.unwrap_err()), "E342");
    let named = TaskQuery { name: Some("again".parse().unwrap()), ..TaskQuery::default() };
    assert_eq!(client.tasks(run.id(), &named).await.unwrap()[0].task.0, 45_051);
    // Somebody without handles.
    assert_eq!(client.get_named::<Vec<u8>>(run.id(), "again").await.unwrap(), bytes);
    assert_eq!(code(&client.get_named::<String>(run.id(), "total").await.unwrap_err()), "E344");
    assert_eq!(code(&client.get_named::<u64>(run.id(), "again").await.unwrap_err()), "E343");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_gathers_more_small_values_than_travel_in_a_message() {
    let cluster = start().await;
    let mut graph = TaskGraph::new("gathered");
    // 33 MiB, each below what travels inline.
    let parts = graph.map(BLANK, [(16_000,); 2_200]);
    let total = graph.call(JOIN, (&parts,));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    assert_eq!(run.get(&total).await.unwrap(), 2_200 * 16_000);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_is_there_is_submitted_again_without_its_large_constants() {
    let cluster = start().await;
    let client = &cluster.client;
    let mut graph = TaskGraph::new("constants");
    let reversed = graph.call(REVERSE, (vec![7u8; 100_000],));
    let run = client.submit_tasks(&graph).await.unwrap();
    run.get(&reversed).await.unwrap();
    assert!(!client.submit_tasks(&graph).await.unwrap().is_new());
    let unnamed = client.gc(Duration::ZERO).await.unwrap();
    assert_eq!(unnamed.blobs, 0, "a constant that no job names was uploaded");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_is_refused_leaves_its_name_free() {
    let cluster = start().await;
    let client = &cluster.client;
    assert_eq!(code(&client.submit_tasks(&TaskGraph::new("No name")).await.unwrap_err()), "E001");
    assert_eq!(code(&client.submit_tasks(&TaskGraph::new("a")).await.unwrap_err()), "E042");
    let mut broken = TaskGraph::new("a");
    let foreign = TaskGraph::new("b").call(NEXT, (1,));
    broken.call(NEXT, (foreign,));
    assert_eq!(code(&client.submit_tasks(&broken).await.unwrap_err()), "E340");
    // What is wrong comes with the second part, when the first is stored.
    let mut late = TaskGraph::new("a");
    late.map(NEXT, (0..20_000).map(|n| (n,)));
    let twice = CallOptions::new().name("twice");
    late.map_with(&twice, NEXT, [(1,), (2,)]);
    assert_eq!(code(&client.submit_tasks(&late).await.unwrap_err()), "E045");

    let mut good = TaskGraph::new("a");
    let two = good.call(NEXT, (1,));
    let run = client.submit_tasks(&good).await.unwrap();
    run.wait(|_| {}).await.unwrap();
    let mut other = TaskGraph::new("a");
    other.call(NEXT, (2,));
    assert_eq!(code(&client.submit_tasks(&other).await.unwrap_err()), "E130");
    let run = client.replace_tasks(&good).await.unwrap();
    assert_eq!(run.get(&two).await.unwrap(), 2);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_submit_the_same_graph_share_one_job_also_when_it_is_over() {
    let cluster = start().await;
    let build = || {
        let mut graph = TaskGraph::new("shared");
        let numbers = graph.map(NEXT, (0..45_000).map(|n| (n,)));
        let total = graph.call(SUM, (&numbers,));
        (graph, total)
    };
    let submit = |n: u32| {
        let client = cluster.client.clone();
        async move {
            let (graph, total) = build();
            let run = client.submit_tasks(&graph).await.unwrap();
            assert_eq!(run.get(&total).await.unwrap(), 45_000 * 45_001 / 2, "client {n}");
            run.is_new()
        }
    };
    // Each finds what the others have sent so far.
    let (zero, one, two) = tokio::join!(submit(0), submit(1), submit(2));
    assert_eq!([zero, one, two].iter().filter(|is_new| **is_new).count(), 1, "one of them has begun it");
    let submitted = async || cluster.client.jobs().await.unwrap()[0].submitted_ms;
    let first = submitted().await;
    assert!(!submit(3).await);
    assert_eq!(submitted().await, first, "nothing was done once more");
    cluster.client.replace_tasks(&build().0).await.unwrap();
    assert!(submitted().await > first);

    let mut small = TaskGraph::new("small");
    let two = small.call(NEXT, (1,));
    for id in ["small", "small-2", "small-3"] {
        let run = cluster.client.submit_new_tasks(&small).await.unwrap();
        assert_eq!((run.id().as_str(), run.is_new(), run.get(&two).await.unwrap()), (id, true, 2));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_a_value_says_why() {
    let cluster = start().await;
    let client = &cluster.client;
    let mut graph = TaskGraph::new("skips");
    let skipped = graph.call(SKIP, ());
    let needs_it = graph.call(NEXT, (skipped,));
    let two = graph.call(NEXT, (1,));
    let run = client.submit_tasks(&graph).await.unwrap();
    let done = run.wait(|_| {}).await.unwrap().job.tasks.unwrap();
    assert_eq!((done.skipped, done.done), (2, 1));
    assert_eq!(code(&run.get(&needs_it).await.unwrap_err()), "E341");
    assert_eq!(run.get(&two).await.unwrap(), 2);
    // The same place in a graph of other types.
    let mut other = TaskGraph::new("skips");
    let text = (0..3).map(|_| other.call(Function::<(), String>::new("text"), ())).last().unwrap();
    assert_eq!(code(&run.get(&text).await.unwrap_err()), "E598");
    let beyond = graph.call(NEXT, (1,));
    assert_eq!(code(&run.get(&beyond).await.unwrap_err()), "E138");

    let mut graph = TaskGraph::new("fails");
    let failing = graph.call(FAIL, ());
    let run = client.submit_tasks(&graph).await.unwrap();
    let failed = run.wait(|_| {}).await.unwrap_err().to_string();
    assert!(failed.starts_with("[E506]") && failed.contains("it always does"), "{failed}");
    let told = run.get(&failing).await.unwrap_err();
    assert!(matches!(&told, TaskError::NoValue { state: TaskState::Failed, code: Some(_), .. }), "{told}");
    assert!(told.to_string().ends_with("it always does"), "{told}");

    let again = client.submit_tasks(&graph).await.unwrap();
    let older = [
        again.get(&failing).await.unwrap_err().to_string(),
        again.get_all(&[failing]).await.unwrap_err().to_string(),
        again.as_completed(&[failing]).unwrap().next().await.unwrap().unwrap().value.unwrap_err().to_string(),
        again.wait(|_| {}).await.unwrap_err().to_string(),
    ];
    for told in older {
        let (_, age) = told.split_once("it always does; this is the job that was there, submitted ").unwrap();
        assert!(age.ends_with(" s ago: `replace_tasks` runs it anew"), "{told}");
    }
    let anew = client.replace_tasks(&graph).await.unwrap().get(&failing).await.unwrap_err().to_string();
    assert!(anew.ends_with("it always does"), "{anew}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_need_memory_run_together_only_as_far_as_the_worker_offers_it() {
    static RUNNING: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    const GIB: u64 = 1 << 30;
    let began = Instant::now();
    let hold = move |n: u64| {
        let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
        MOST.fetch_max(running, Ordering::SeqCst);
        // There is room for two: the first waits for the second.
        while MOST.load(Ordering::SeqCst) < 2 && began.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        n
    };
    let functions = Worker::builder().register(NEXT, hold).slots(8).memory(5 * GIB);
    let cluster = FunctionCluster::start(0, functions).await;
    let mut graph = TaskGraph::new("memory");
    graph.map_with(&CallOptions::new().memory(2 * GIB), NEXT, (0..500).map(|n| (n,)));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    run.wait(|_| {}).await.unwrap();
    assert_eq!(MOST.load(Ordering::SeqCst), 2);

    let mut never = TaskGraph::new("never");
    let soon = Duration::from_millis(1);
    never.call_with(&CallOptions::new().gpu(1).queue_limit(soon), NEXT, (1,));
    let run = cluster.client.submit_tasks(&never).await.unwrap();
    let error = run.wait(|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("can ever hold it: it needs 1 GPU") && error.contains("0 GPUs"), "{error}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_job_tell_each_attempt_that_failed_and_who_had_it() {
    let cluster = start().await;
    let mut graph = TaskGraph::new("fails");
    let soon = Duration::from_millis(1);
    graph.call_with(&CallOptions::new().retries(2).backoff(soon, soon), FAIL, ());
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    run.wait(|_| {}).await.unwrap_err();
    let events = cluster.client.events(run.id(), None).await.unwrap();
    let failed: Vec<_> = events
        .iter()
        .map(|entry| &entry.value)
        .filter(|event| event.what == EventKind::AttemptFailed)
        .collect();
    assert_eq!(failed.iter().map(|event| event.attempt).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    let by_whom = |event: &&JobEvent| event.worker.is_some() && event.code.as_deref() == Some("E440");
    assert!(failed.iter().all(by_whom), "{failed:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_is_not_to_be_tried_again_ends_its_task_at_the_first_attempt() {
    let cluster = start().await;
    let mut graph = TaskGraph::new("refuses").keep_going_on_failure();
    let patient = CallOptions::new().retries(5).crash_retries(5);
    let refused = graph.call_with(&patient, REFUSE, ());
    let needs_it = graph.call(NEXT, (refused,));
    let beside_it = graph.call(NEXT, (1,));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    assert_eq!(run.get(&beside_it).await.unwrap(), 2);
    run.wait(|_| {}).await.unwrap();
    let view = cluster.client.task(run.id(), refused.index()).await.unwrap();
    assert_eq!((view.state, view.attempts), (TaskState::Failed, 1));
    assert!(view.reason.ends_with("it is of no use"), "{}", view.reason);
    let view = cluster.client.task(run.id(), needs_it.index()).await.unwrap();
    assert_eq!(view.state, TaskState::Skipped);
    let events = cluster.client.events(run.id(), None).await.unwrap();
    assert!(events.iter().any(|event| event.value.what == EventKind::AttemptFailed), "{events:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_job_was_replaced_gets_nothing_of_the_new_one_and_does_nothing_to_it() {
    let cluster = start().await;
    let client = &cluster.client;
    let build = |n: u64| {
        let mut graph = TaskGraph::new("nightly");
        let next = graph.call(NEXT, (n,));
        (graph, next)
    };
    let ((last_nights, old), (tonights, new)) = (build(1), build(5));
    let run = client.submit_tasks(&last_nights).await.unwrap();
    let mut completed = run.as_completed(&[old]).unwrap();
    run.wait(|_| {}).await.unwrap();
    let meant = client.status(run.id()).await.unwrap().job.job_ref();
    let now = client.replace_tasks(&tonights).await.unwrap();
    let refused = [
        run.get(&old).await.unwrap_err(),
        run.get_all(&[old]).await.unwrap_err(),
        completed.next().await.unwrap_err(),
        run.cancel_task(&old, &Cancellation::new()).await.unwrap_err(),
        run.wait(|_| {}).await.unwrap_err().into(),
        run.cancel().await.unwrap_err().into(),
        client.wait_for(&meant, None, |_| {}).await.unwrap_err().into(),
        client.cancel_job(&meant, &Cancellation::new()).await.unwrap_err().into(),
    ];
    for error in refused {
        assert_eq!(code(&error), "E650", "{error}");
    }
    assert_eq!(now.get(&new).await.unwrap(), 6);
    now.wait(|_| {}).await.unwrap();
    assert_eq!(client.status(run.id()).await.unwrap().job.tasks.unwrap().done, 1, "a name means any job");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_says_how_far_it_is_and_is_canceled_while_the_others_of_its_graph_go_on() {
    let cluster = start().await;
    let client = &cluster.client;
    let mut graph = TaskGraph::new("long").keep_going_on_failure();
    let long = graph.call_with(&CallOptions::new().retries(9).skip_dependents_on_failure(), LONG, ());
    let behind = graph.call(NEXT, (long,));
    let beside = graph.call(NEXT, (1,));
    let run = client.submit_tasks(&graph).await.unwrap();
    let (progress, since_ms) = until("the call says how far it is", async || {
        let view = client.task(run.id(), TaskIndex(0)).await.unwrap();
        Some((view.progress?, view.running_since_ms))
    })
    .await;
    assert_eq!(progress.to_string(), "1 of 4, begun");
    assert!(since_ms.is_some());

    run.cancel_task(&long, &Cancellation::new().reason("enough")).await.unwrap();
    for (handle, state) in [(&long, TaskState::Failed), (&behind, TaskState::Skipped)] {
        let error = run.get(handle).await.unwrap_err();
        let TaskError::NoValue { state: ended, code, reason, .. } = &error else { panic!("{error}") };
        assert_eq!((*ended, code.unwrap().to_string()), (state, "E602".to_owned()), "{error}");
        assert!(reason.contains("somebody canceled it: enough"), "{reason}");
    }
    assert_eq!(run.get(&beside).await.unwrap(), 2);
    run.wait(|_| {}).await.unwrap();
    assert_eq!(client.task(run.id(), TaskIndex(0)).await.unwrap().attempts, 1);
    assert_eq!(code(&run.cancel_task(&beside, &Cancellation::new()).await.unwrap_err()), "E137");
    cluster.stop().await;
}
