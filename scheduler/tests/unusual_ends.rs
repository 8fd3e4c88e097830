//! Ends of tasks in an order that only an accident brings about.

use syncline_scheduler::{
    core::{Cancellation, Core, Effect, IfTaken, Input, StoredJob, Submission, TaskJob, WorkerInfo},
    ids::{ContentDigest, Incarnation, JobId, ProcessId},
    sim::{graph_submission, new_task, task_end, tasks_ended, training, training_job},
    spec::{JobSpec, NodeKind},
    tasks::{
        Arg, BlobValue, Capacity, Failure, FailureCause, FunctionId, Gives, NewTask, OnFailure, Outcome,
        Rules, Spawned, TaskClass, TaskEnd, TaskQuery, TaskRef, TaskState, TaskView, Value,
    },
};

use crate::cluster::stored::apply;

const NOW_US: u64 = 1_000_000;
const NONCE: u32 = 7;
const WORKER: Incarnation = Incarnation(1);

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

fn function() -> FunctionId {
    FunctionId { name: "look".parse().unwrap(), signature: 1, types: String::new() }
}

/// Calls that fail for good at once, whatever ends them.
fn class(on_failure: OnFailure) -> TaskClass {
    let rules = Rules { crashes: 0, errors: 0, on_failure, ..Rules::default() };
    TaskClass { rules, ..TaskClass::call(function()) }
}

fn takes(args: &[u32]) -> NewTask {
    let args = args.iter().map(|task| Arg::Output(TaskRef::New(*task))).collect();
    NewTask { args, ..new_task(0) }
}

fn join(core: &mut Core, worker: u64) {
    let capacity = Capacity { slots: 4, functions: [function()].into(), ..Capacity::default() };
    let about = WorkerInfo { process: ProcessId::new(worker), capacity, ..WorkerInfo::default() };
    core.handle(NOW_US, Input::WorkerJoined { worker: Incarnation(worker), about }).unwrap();
}

fn core(on_failure: OnFailure, tasks: Vec<NewTask>) -> Core {
    let mut core = Core::new(1);
    join(&mut core, WORKER.0);
    let graph = graph_submission(&id("graph"), NONCE, vec![class(on_failure)], tasks);
    core.handle(NOW_US, Input::SubmitGraph(graph)).unwrap();
    core
}

fn end(core: &mut Core, task: u32, attempt: u16, outcome: Outcome) -> Vec<Effect> {
    let ended = vec![task_end(task, attempt, outcome)];
    core.handle(NOW_US, tasks_ended(WORKER, &id("graph"), NONCE, ended)).unwrap()
}

fn views(core: &Core) -> Vec<TaskView> {
    core.task_views(&id("graph"), &TaskQuery::default(), NOW_US).unwrap()
}

fn states(core: &Core) -> Vec<TaskState> {
    views(core).iter().map(|view| view.state).collect()
}

#[test]
fn what_was_leased_ahead_and_ends_before_what_it_needs_runs_once_more_behind_that() {
    // Redis has lost the end of the first, after which the worker ran the second.
    let mut core = core(OnFailure::FailJob, vec![takes(&[]), takes(&[0])]);
    assert_eq!(states(&core), [TaskState::Leased; 2]);
    end(&mut core, 1, 1, Outcome::Value(Value::default()));
    assert_eq!(states(&core), [TaskState::Leased, TaskState::Waiting]);
    end(&mut core, 0, 1, Outcome::Value(Value::default()));
    assert_eq!(states(&core), [TaskState::Done, TaskState::Leased]);
    end(&mut core, 1, 2, Outcome::Value(Value::default()));
    assert_eq!(states(&core), [TaskState::Done; 2]);
}

#[test]
fn a_run_of_days_is_told_as_long_as_it_was() {
    const RUN_US: u64 = 48 * 3_600 * 1_000_000;
    let mut core = core(OnFailure::FailJob, vec![takes(&[])]);
    let ended = vec![TaskEnd { run_us: RUN_US, ..task_end(0, 1, Outcome::Value(Value::default())) }];
    core.handle(NOW_US, tasks_ended(WORKER, &id("graph"), NONCE, ended)).unwrap();
    assert_eq!(views(&core)[0].run_us, Some(RUN_US));
}

/// Two workers with eight calls, each of which is tried again so often after a crash, when a training has
/// sent one of them away.
fn sent_away_beside_calls(crashes: u16) -> Core {
    let mut core = Core::new(1);
    join(&mut core, 1);
    let mut spec = training_job(training("asp".parse().unwrap(), 64, 8));
    for node in &mut spec.nodes {
        if let NodeKind::Train(train) = &mut node.kind {
            train.max_workers = 9;
        }
    }
    let spec = Box::new(JobSpec { id: id("training"), ..spec });
    core.handle(NOW_US, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
    let run = core.job(&id("training")).unwrap().run();
    core.handle(NOW_US, Input::ShardsOpened { run }).unwrap();
    // It prepares itself for the training, and runs calls.
    join(&mut core, 2);
    let tasks = (0..8).map(|_| new_task(0)).collect();
    let TaskClass { work, rules } = class(OnFailure::FailJob);
    let classes = vec![TaskClass { work, rules: Rules { crashes, ..rules } }];
    core.handle(NOW_US, Input::SubmitGraph(graph_submission(&id("graph"), NONCE, classes, tasks))).unwrap();
    let cancellation = Cancellation { job: id("training").into(), reason: String::new(), grace_ms: 0 };
    let effects = core.handle(NOW_US, Input::Cancel(cancellation)).unwrap();
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::DismissWorker { worker: Incarnation(2), .. }))
    );
    core
}

#[test]
fn a_training_that_sends_a_worker_away_costs_the_calls_beside_it_no_attempt() {
    let mut core = sent_away_beside_calls(1);
    let left = states(&core);
    assert!(left.iter().all(|state| matches!(state, TaskState::Leased | TaskState::Ready)), "{left:?}");
    // The death of a worker is another matter.
    core.handle(NOW_US, Input::WorkerGone { worker: WORKER, reason: "dead".into(), never_told: Vec::new() })
        .unwrap();
    assert!(states(&core).contains(&TaskState::Backoff));
}

#[test]
fn calls_that_must_not_begin_twice_fail_with_a_worker_that_a_training_sends_away() {
    let views = views(&sent_away_beside_calls(0));
    let failed = views.iter().find(|view| view.state == TaskState::Failed).unwrap();
    assert!(failed.reason.contains("was stopped or sent away and may have begun it"), "{}", failed.reason);
}

#[test]
fn a_blob_that_a_task_still_takes_stays_when_the_one_that_it_continued_is_not_wanted_any_more() {
    let blob = || BlobValue { digest: ContentDigest::from_bytes([0xab; 32]), bytes: 1 << 20 };
    // Task 2 takes what 0 and 1 give. Task 0 gives what its child 3 gives, which its child 4 takes as well.
    let mut core = core(OnFailure::SkipDependents, vec![takes(&[]), takes(&[]), takes(&[0, 1])]);
    let children = Spawned {
        classes: vec![class(OnFailure::SkipDependents)],
        tasks: vec![takes(&[]), takes(&[0])],
        gives: Gives::New(0),
    };
    end(&mut core, 0, 1, Outcome::Spawned(Box::new(children)));
    let failure =
        Failure { cause: FailureCause::Function, code: "E440".parse().unwrap(), reason: "no".into() };
    end(&mut core, 1, 1, Outcome::Failed(failure));
    assert_eq!(states(&core)[2], TaskState::Skipped);
    let effects = end(&mut core, 3, 1, Outcome::Value(Value::Blob(blob())));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::ReleaseBlobs { .. })), "{effects:?}");
    let effects = end(&mut core, 4, 1, Outcome::Value(Value::default()));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::ReleaseBlobs { .. })), "{effects:?}");
}

#[test]
fn large_arguments_of_a_call_go_when_it_is_over_and_not_before() {
    let large = |n: &str| {
        let blob = BlobValue { digest: n.repeat(64).parse().unwrap(), bytes: 1 << 20 };
        NewTask { args: vec![Arg::Blob(blob)], ..new_task(0) }
    };
    let released = |effects: Vec<Effect>| -> Vec<String> {
        let of = |effect| if let Effect::ReleaseBlobs { digests } = effect { digests } else { Vec::new() };
        effects.into_iter().flat_map(of).map(|digest| digest.to_string()[..1].to_owned()).collect()
    };
    let mut core = core(OnFailure::SkipDependents, ["a", "b", "c", "d"].map(large).into());
    assert!(released(end(&mut core, 0, 1, Outcome::NotBegun)).is_empty(), "it is given out again");
    assert_eq!(released(end(&mut core, 0, 2, Outcome::Value(Value::default()))), ["a"]);
    assert_eq!(released(end(&mut core, 1, 1, Outcome::Skipped)), ["b"]);
    let cancellation = Cancellation { job: id("graph").into(), reason: String::new(), grace_ms: 0 };
    assert_eq!(
        released(core.handle(NOW_US, Input::Cancel(cancellation)).unwrap()),
        ["c", "d"],
        "with the job"
    );
}

#[test]
fn large_values_of_ends_that_do_not_count_go_and_those_that_were_taken_stay() {
    let blob = |n: &str| BlobValue { digest: n.repeat(64).parse().unwrap(), bytes: 1 << 20 };
    let given = |n| Outcome::Value(Value::Blob(blob(n)));
    let released = |effects: Vec<Effect>| -> Vec<String> {
        let of = |effect| if let Effect::ReleaseBlobs { digests } = effect { digests } else { Vec::new() };
        effects.into_iter().flat_map(of).map(|digest| digest.to_string()[..1].to_owned()).collect()
    };
    let added = |value, arg| {
        let tasks = vec![NewTask { args: vec![Arg::Blob(blob(arg))], ..new_task(0) }];
        let gives = Gives::Value(Value::Blob(blob(value)));
        Outcome::Spawned(Box::new(Spawned { classes: vec![class(OnFailure::SkipDependents)], tasks, gives }))
    };
    for grace_ms in [0, 1_000] {
        let tasks = vec![takes(&[]), takes(&[0]), takes(&[]), takes(&[]), takes(&[3])];
        let mut core = core(OnFailure::SkipDependents, tasks);
        assert!(released(end(&mut core, 0, 1, given("a"))).is_empty());
        assert!(released(end(&mut core, 0, 1, given("a"))).is_empty(), "told once more");
        assert_eq!(released(end(&mut core, 0, 0, given("b"))), ["b"], "of an attempt that was given up");
        assert!(released(end(&mut core, 3, 1, added("c", "d"))).is_empty());
        assert!(released(end(&mut core, 3, 1, added("c", "d"))).is_empty(), "told once more");
        let cancellation = Cancellation { job: id("graph").into(), reason: String::new(), grace_ms };
        released(core.handle(NOW_US, Input::Cancel(cancellation)).unwrap());
        let late = released(end(&mut core, 2, 1, added("e", "f")));
        match grace_ms {
            // It may have been taken, for all that is known of a job that is over.
            0 => assert_eq!(late, ["e"]),
            _ => assert_eq!(late, ["e", "f"]),
        }
        assert!(!released(end(&mut core, 3, 1, added("c", "d"))).contains(&"d".to_owned()));
    }
}

#[test]
fn what_a_refused_task_was_to_be_called_with_goes() {
    let blob = BlobValue { digest: "a".repeat(64).parse().unwrap(), bytes: 1 << 20 };
    let mut core = core(OnFailure::FailJob, vec![takes(&[])]);
    // There is no class 7.
    let tasks = vec![NewTask { args: vec![Arg::Blob(blob.clone())], ..new_task(7) }];
    let classes = vec![class(OnFailure::FailJob)];
    let refused = Spawned { classes, tasks, gives: Gives::Value(Value::default()) };
    let effects = end(&mut core, 0, 1, Outcome::Spawned(Box::new(refused)));
    assert!(effects.contains(&Effect::ReleaseBlobs { digests: vec![blob.digest] }), "{effects:?}");
}

#[test]
fn a_call_is_not_given_out_under_a_number_that_redis_forgot_and_its_worker_has_ended() {
    let mut core = core(OnFailure::FailJob, vec![takes(&[]), takes(&[0]), takes(&[0])]);
    let mut stored = StoredJob::default();
    let mut store = |core: &mut Core| {
        core.take_commits(NOW_US).into_iter().for_each(|(_, commit)| apply(&mut stored, commit));
        assert_eq!(Some(&TaskJob::load(&stored).unwrap()), core.task_job(&id("graph")));
    };
    store(&mut core);
    // The engine before had given it out behind the end of the first, which is lost.
    end(&mut core, 1, 1, Outcome::Value(Value::default()));
    assert_eq!(states(&core), [TaskState::Leased, TaskState::Waiting, TaskState::Waiting]);
    store(&mut core);
    end(&mut core, 0, 1, Outcome::Value(Value::default()));
    assert_eq!(states(&core), [TaskState::Done, TaskState::Leased, TaskState::Leased]);
    assert_eq!(views(&core).iter().map(|view| view.attempts).collect::<Vec<_>>(), [1, 2, 1]);
    store(&mut core);
}
