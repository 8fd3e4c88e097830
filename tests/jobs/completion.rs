//! What a program gets of tasks as they end, whichever way: done at once or after all, at a limit of time, in
//! vain, or canceled while they pause before the next attempt. Engine, shards and worker are real.

use std::{thread, time::Duration};

use syncline::{
    CallOptions, Cancellation, Function, TaskError, TaskGraph, TaskHandle, TaskIndex, TaskState,
    worker::{Context, Worker},
};

use crate::function_cluster::FunctionCluster;

/// The attempt, from the second on.
const FLAKY: Function<(), u64> = Function::new("flaky");
const FAIL: Function<(), u64> = Function::new("fail");
/// Goes on until somebody stops it.
const LONG: Function<(), u64> = Function::new("long");

/// Needs a thread that the system does not give.
const STARVED: Function<(), u64> = Function::new("starved");

fn flaky(context: &Context) -> Result<u64, String> {
    match context.attempt() {
        1 => Err("not yet".to_owned()),
        attempt => Ok(attempt.into()),
    }
}

fn long(context: &Context) -> u64 {
    while !context.canceled() {
        thread::yield_now();
    }
    0
}

/// As `std::thread::spawn` does at the limit on processes: no system has room for such a stack.
fn starved() -> u64 {
    let thread = thread::Builder::new().stack_size(1 << 60).spawn(|| 1);
    thread.expect("failed to spawn thread").join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_task_is_given_once_when_it_has_ended_for_good() {
    let functions = Worker::builder()
        .register(FLAKY, flaky)
        .register(FAIL, || Err::<u64, _>("it always does"))
        .register(LONG, long)
        .register(STARVED, starved)
        .slots(4);
    let cluster = FunctionCluster::start(0, functions).await;
    let soon = CallOptions::new().retries(1).backoff(Duration::from_millis(1), Duration::from_millis(1));
    let crashes = soon.clone().retries(0).crash_retries(1);
    let limited = CallOptions::new().run_limit(Duration::from_millis(1));
    let far = Duration::from_secs(3_600);
    let tomorrow = CallOptions::new().retries(1).backoff(far, far);
    let mut graph = TaskGraph::new("completed").keep_going_on_failure();
    let tasks: [TaskHandle<u64>; 6] = [
        graph.call_with(&soon, FLAKY, ()),
        graph.call(FAIL, ()),
        graph.call_with(&soon, FAIL, ()),
        graph.call_with(&limited, LONG, ()),
        graph.call_with(&crashes, STARVED, ()),
        graph.call_with(&tomorrow, FAIL, ()),
    ];
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    let mut completed = run.as_completed(&tasks).unwrap();
    let mut given = [const { None }; 6];
    let code = |error: TaskError| match error {
        TaskError::NoValue { code: Some(code), .. } => code.to_string(),
        other => panic!("{other}"),
    };
    for remaining in (1..6).rev() {
        let ended = completed.next().await.unwrap().unwrap();
        assert_eq!(completed.remaining(), remaining);
        assert!(given[ended.index].replace(ended.value.map_err(code)).is_none(), "{} twice", ended.index);
    }
    let failed = |code: &str| Some(Err(code.to_owned()));
    let expected = [Some(Ok(2)), failed("E440"), failed("E440"), failed("E443"), failed("E595"), None];
    assert_eq!(given, expected);
    let view = async |task| cluster.client.task(run.id(), TaskIndex(task)).await.unwrap();
    assert_eq!(view(4).await.attempts, 2, "it may be another worker that has threads");

    // The last one pauses until it is canceled.
    let pauses = view(5).await;
    assert_eq!((pauses.state, pauses.attempts), (TaskState::Backoff, 1), "{}", pauses.reason);
    run.cancel_task(&tasks[5], &Cancellation::new().reason("enough")).await.unwrap();
    let last = completed.next().await.unwrap().unwrap();
    assert_eq!((last.index, last.value.map_err(code)), (5, Err("E602".to_owned())));
    assert!(completed.next().await.unwrap().is_none());
    run.wait(|_| {}).await.unwrap();
    cluster.stop().await;
}
