//! Outcomes of tasks of every kind, and how people see what became of them. Engine, shards and workers are
//! real.

use std::{process::Command, time::Duration};

use syncline::{
    ArgumentError, CallOptions, Cancellation, Function, TaskFailure, TaskGraph, TaskQuery, TaskState,
    Trained, TrainingChanges,
    worker::{Context, Next, Worker},
};
use syncline_scheduler::spec::Augment;

use crate::{function_cluster::FunctionCluster, summing};

/// A number that a third of the times is there, fails, or is skipped.
const LOAD: Function<(u64,), u64> = Function::new("load");
const NEXT: Function<(u64,), u64> = Function::new("next");
const TOLD: Function<(Result<u64, TaskFailure>,), String> = Function::new("told");
const ALL_TOLD: Function<(Vec<Result<u64, TaskFailure>>,), Vec<String>> = Function::new("all-told");
/// What becomes of so many calls of [`LOAD`] that it adds.
const FAMILY: Function<(u64,), Vec<String>> = Function::new("family");
/// Gives what a call of [`LOAD`] gives that it adds.
const HEIR: Function<(u64,), u64> = Function::new("heir");
const CHANGES: Function<(), TrainingChanges> = Function::new("changes");
const SAMPLES: Function<(Vec<Result<Trained, TaskFailure>>,), Vec<String>> = Function::new("samples");

fn load(n: u64) -> Result<Next<u64>, String> {
    match n % 3 {
        0 => Ok(Next::Value(n)),
        1 => Err(format!("{n} is not to be had")),
        _ => Ok(Next::Skip),
    }
}

fn text<T>(outcome: Result<T, TaskFailure>, number: impl Fn(T) -> u64) -> String {
    match outcome {
        Ok(value) => number(value).to_string(),
        Err(TaskFailure { code: Some(code), .. }) => code.to_string(),
        Err(TaskFailure { code: None, .. }) => "skipped".to_owned(),
    }
}

fn all_told(outcomes: Vec<Result<u64, TaskFailure>>) -> Vec<String> {
    outcomes.into_iter().map(|outcome| text(outcome, |n| n)).collect()
}

fn family(context: &Context, children: u64) -> Result<Next<Vec<String>>, ArgumentError> {
    let loads = context.map(LOAD, (0..children).map(|n| (n,)))?;
    let outcomes: Vec<_> = loads.iter().map(|load| load.outcome()).collect();
    Ok(Next::Of(context.call(ALL_TOLD, (&outcomes,))?))
}

fn heir(context: &Context, n: u64) -> Result<Next<u64>, ArgumentError> {
    Ok(Next::Of(context.call(LOAD, (n,))?))
}

async fn start(workers: usize) -> FunctionCluster {
    let functions = Worker::builder()
        .register(LOAD, load)
        .register(NEXT, |n: u64| n + 1)
        .register(TOLD, |outcome: Result<u64, TaskFailure>| text(outcome, |n| n))
        .register(ALL_TOLD, all_told)
        .register(FAMILY, family)
        .register(HEIR, heir)
        .register(CHANGES, || Err::<TrainingChanges, _>("nobody knows which"))
        .register(SAMPLES, |all: Vec<Result<Trained, TaskFailure>>| {
            all.into_iter().map(|outcome| text(outcome, |trained| trained.samples)).collect::<Vec<_>>()
        });
    FunctionCluster::start(workers, functions).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mapped_calls_and_calls_that_a_task_adds_have_outcomes_and_take_them() {
    let cluster = start(0).await;
    let mut graph = TaskGraph::new("mapped");
    let loads = graph.map(LOAD, (0..3).map(|n| (n,)));
    let each = graph.map(TOLD, loads.iter().map(|load| (load.outcome(),)));
    let outcomes: Vec<_> = loads.iter().map(|load| load.outcome()).collect();
    let all = graph.call(ALL_TOLD, (&outcomes,));
    let behind = graph.map(NEXT, loads.iter().map(|load| (*load,)));
    let far = graph.map(TOLD, behind.iter().map(|next| (next.outcome(),)));
    let family = graph.call(FAMILY, (3,));
    let heirs = graph.map(HEIR, (0..3).map(|n| (n,)));
    let inherited = graph.map(TOLD, heirs.iter().map(|heir| (heir.outcome(),)));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();

    let expected = ["0", "E440", "skipped"];
    assert_eq!(run.get(&all).await.unwrap(), expected);
    assert_eq!(run.get(&family).await.unwrap(), expected);
    assert_eq!(run.get_all(&each).await.unwrap(), expected);
    assert_eq!(run.get_all(&inherited).await.unwrap(), expected);
    assert_eq!(run.get_all(&far).await.unwrap(), ["1", "E440", "skipped"]);
    let counts = run.wait(|_| {}).await.unwrap().job.tasks.unwrap();
    // Of each kind a call, a child of the family, and one of an heir; the heirs and who takes the value
    // itself are skipped either way.
    assert_eq!((counts.failed, counts.skipped), (3, 3 + 2 + 2), "{counts:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_task_and_of_who_takes_its_outcome_is_shown_and_exported() {
    let cluster = start(0).await;
    let mut graph = TaskGraph::new("shown");
    let failed = graph.call_with(&CallOptions::new().name("failed"), LOAD, (1,));
    let told = graph.call_with(&CallOptions::new().name("told"), TOLD, (failed.outcome(),));
    let nobody = Function::<(u64,), u64>::new("nobody-has-it");
    let waits = graph.call(nobody, (1,));
    graph.call_with(&CallOptions::new().name("waits"), TOLD, (waits.outcome(),));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    assert_eq!(run.get(&told).await.unwrap(), "E440");

    let views = cluster.client.tasks(run.id(), &TaskQuery::default()).await.unwrap();
    let states: Vec<TaskState> = views.iter().map(|view| view.state).collect();
    assert_eq!(states, [TaskState::Failed, TaskState::Done, TaskState::Ready, TaskState::Waiting]);
    assert_eq!(views[0].code.unwrap().to_string(), "E440");
    assert!(views[0].reason.contains("1 is not to be had"), "{}", views[0].reason);
    assert_eq!((views[1].inputs.len(), views[1].inputs_total, views[1].code), (1, 1, None));
    assert!(views[3].reason.contains("it waits for task 2"), "{}", views[3].reason);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shown.export").display().to_string();
    let engine = cluster.cluster.cluster().engines.to_string();
    let state_dir = cluster.cluster.state_dir().display().to_string();
    let syncline = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_syncline-under-test"));
        let ended = command.args(args).output().unwrap();
        assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    };
    let online =
        |args: &[&str]| syncline(&[args, &["--engine", &engine, "--state-dir", &state_dir]].concat());
    online(&["export", "shown", &file]);
    let looks: [&[&str]; 6] = [
        &["tasks", "shown"],
        &["tasks", "shown", "failed"],
        &["tasks", "shown", "told"],
        &["tasks", "shown", "waits"],
        &["explain", "shown", "told"],
        &["explain", "shown", "failed"],
    ];
    for look in looks {
        let (now, read) = (online(look), syncline(&[look, &["--from", &file]].concat()));
        assert_eq!(now, read, "{look:?}");
    }
    let failed = online(&["explain", "shown", "failed"]);
    assert!(failed.contains("E440") && failed.contains("1 is not to be had"), "{failed}");
    let told = online(&["tasks", "shown", "told"]);
    assert!(told.contains("needs     0: failed") && told.contains("\"E440\""), "{told}");
    run.cancel().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_has_an_outcome_whether_it_is_done_fails_is_canceled_or_is_skipped() {
    let cluster = start(1).await;
    let client = &cluster.client;
    let dir = tempfile::tempdir().unwrap();
    let data = summing::data(dir.path(), 8, Augment::default());
    let training = client.prepare_training(&summing::job("unnamed", data, "bsp", 1)).await.unwrap();

    let mut graph = TaskGraph::new("trainings");
    let done = graph.train(&training, TrainingChanges::new());
    // More workers than there will ever be.
    let never = || TrainingChanges::new().min_workers(99);
    let late = CallOptions::new().queue_limit(Duration::from_millis(1));
    let failed = graph.train_with(&late, &training, never());
    let canceled = graph.train(&training, never());
    let alone = graph.train(&training, never());
    let changes = graph.call(CHANGES, ());
    let skipped = graph.train(&training, changes);
    let outcomes = [done, failed, canceled, alone, skipped].map(|trained| trained.outcome());
    let told = graph.call(SAMPLES, (&outcomes,));
    let run = client.submit_tasks(&graph).await.unwrap();

    // Its job is canceled, and the task itself.
    let job = run.id().of_training(2, 1);
    while client.status(&job).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.cancel(&job).await.unwrap();
    run.cancel_task(&alone, &Cancellation::new()).await.unwrap();
    let told = run.get(&told).await.unwrap();
    assert_eq!(told, ["8", "E060", "E059", "E602", "E440"]);
    run.wait(|_| {}).await.unwrap();
    cluster.stop().await;
}
