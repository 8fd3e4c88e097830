//! Graphs that somebody cancels: what is told to whom, what still counts, and when the job is over.

use syncline_scheduler::{
    core::{
        Cancellation, Core, Effect, Happening, Input, JobPhase, Phase, Refused, TaskCancellation, WorkerInfo,
    },
    fault_code::FaultCode,
    ids::{Incarnation, JobId, JobRef},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, Failure, FailureCause, FunctionId, NewTask, Order, Outcome, TaskClass, TaskIndex,
        TaskQuery, TaskRef, TaskState, Value,
    },
};

const WORKER: Incarnation = Incarnation(1);
const SUBMITTED_US: u64 = 1_000_000;
const CANCELED_US: u64 = 2_000_000;

fn id() -> JobId {
    "graph".parse().unwrap()
}

fn cancel(core: &mut Core, now_us: u64, reason: &str, grace_ms: u64) -> Result<Vec<Effect>, Refused> {
    core.handle(now_us, Input::Cancel(Cancellation { job: id().into(), reason: reason.into(), grace_ms }))
}

/// A worker with three slots, and three tasks: 0 and 1 take nothing, 2 takes what 1 gives.
fn core() -> Core {
    let mut core = Core::new(1);
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
    let capacity = Capacity { slots: 3, functions: [function.clone()].into(), ..Capacity::default() };
    let about = WorkerInfo { capacity, ..WorkerInfo::default() };
    core.handle(SUBMITTED_US, Input::WorkerJoined { worker: WORKER, about }).unwrap();
    let third = NewTask { args: vec![Arg::Output(TaskRef::Task(TaskIndex(1)))], ..new_task(0) };
    let tasks = vec![new_task(0), new_task(0), third];
    let submission = graph_submission(&id(), 1, vec![TaskClass::call(function)], tasks);
    core.handle(SUBMITTED_US, Input::SubmitGraph(submission)).unwrap();
    core
}

fn report(core: &mut Core, task: u32, outcome: Outcome) {
    core.handle(CANCELED_US + 1, tasks_ended(WORKER, &id(), 1, vec![task_end(task, 1, outcome)])).unwrap();
}

fn states(core: &Core) -> Vec<TaskState> {
    let views = core.task_views(&id(), &TaskQuery::default(), CANCELED_US).unwrap();
    views.iter().map(|view| view.state).collect()
}

fn reason(core: &Core, task: usize) -> String {
    core.task_views(&id(), &TaskQuery::default(), CANCELED_US).unwrap()[task].reason.clone()
}

fn phase(core: &Core) -> Phase {
    core.task_job(&id()).unwrap().phase().clone()
}

/// What happened last.
fn last_event(core: &mut Core) -> Happening {
    core.take_commits(CANCELED_US).into_values().next().unwrap().events.pop().unwrap().what
}

/// What the worker is told: `r` to run, `c` recall, `s` stop, each with the indices of the tasks.
fn told(effects: &[Effect]) -> Vec<(char, Vec<u32>)> {
    let order = |order: &Order| match order {
        Order::Run(group) => ('r', group.tasks.iter().map(|order| order.task.0).collect()),
        Order::Recall(of) => ('c', of.tasks.iter().map(|of| of.task.0).collect()),
        Order::GiveBack(of) => panic!("{of:?}"),
        Order::Stop(of) => ('s', of.tasks.iter().map(|of| of.task.0).collect()),
    };
    let orders = effects.iter().filter_map(|effect| match effect {
        Effect::Orders { orders, .. } => Some(orders.iter().map(order)),
        _ => None,
    });
    orders.flatten().collect()
}

#[test]
fn what_runs_is_told_to_stop_and_what_waits_for_it_is_over_at_once() {
    let mut core = core();
    assert_eq!(states(&core), [TaskState::Leased; 3], "the third waits for the second there");
    let effects = cancel(&mut core, CANCELED_US, "too dear", 10_000).unwrap();
    assert_eq!(told(&effects), [('c', vec![2]), ('s', vec![0, 1])]);
    assert_eq!(states(&core), [TaskState::Leased, TaskState::Leased, TaskState::Canceled]);
    assert_eq!(core.task_job(&id()).unwrap().shown().word(), "canceling");
    assert!(reason(&core, 0).ends_with("it is given up in 10.0 s"), "{}", reason(&core, 0));
    assert!(reason(&core, 2).ends_with(": too dear"), "{}", reason(&core, 2));
    let event = last_event(&mut core);
    assert!(matches!(&event, Happening::Canceling { reason, .. } if reason == "too dear"), "{event:?}");
}

#[test]
fn a_cancellation_that_means_another_submission_changes_nothing() {
    const NONCE: u32 = 1;
    let mut core = core();
    let job = |nonce| JobRef { id: id(), nonce: Some(nonce) };
    let of_job = |nonce| Input::Cancel(Cancellation { job: job(nonce), reason: String::new(), grace_ms: 0 });
    let of_task = |nonce| {
        let (task, reason) = (TaskIndex(0), String::new());
        Input::CancelTask(TaskCancellation { job: job(nonce), task, reason, grace_ms: 0 })
    };
    let replaced = Refused::Replaced { job: id() };
    for cancellation in [of_job(NONCE + 1), of_task(NONCE + 1)] {
        assert_eq!(core.handle(CANCELED_US, cancellation), Err(replaced.clone()));
    }
    assert_eq!(states(&core), [TaskState::Leased; 3]);
    core.handle(CANCELED_US, of_job(NONCE)).unwrap();
    assert_eq!(phase(&core), Phase::Canceled);
    assert_eq!(
        core.handle(CANCELED_US, of_job(NONCE + 1)),
        Err(replaced),
        "that this one is over says nothing"
    );
}

#[test]
fn a_value_that_still_comes_counts_and_every_other_end_is_none() {
    let mut core = core();
    cancel(&mut core, CANCELED_US, "", 10_000).unwrap();
    report(&mut core, 0, Outcome::Value(Value::Inline(vec![7].into())));
    assert_eq!(phase(&core), Phase::Running);
    let failure =
        Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: "stopped".into() };
    report(&mut core, 1, Outcome::Failed(failure));
    assert_eq!(states(&core), [TaskState::Done, TaskState::Canceled, TaskState::Canceled]);
    assert_eq!(phase(&core), Phase::Canceled, "nothing runs any more");
    let kept = core.task_value(&id(), TaskIndex(0)).unwrap();
    assert_eq!(kept, Some(Value::Inline(vec![7].into())));
}

#[test]
fn what_runs_longer_than_its_grace_is_given_up_and_its_report_changes_nothing() {
    let mut core = core();
    cancel(&mut core, CANCELED_US, "too dear", 10_000).unwrap();
    assert!(told(&core.handle(CANCELED_US + 9_999_999, Input::Tick).unwrap()).is_empty());
    let effects = core.handle(CANCELED_US + 10_000_000, Input::Tick).unwrap();
    assert_eq!((told(&effects), phase(&core)), (vec![('c', vec![0, 1])], Phase::Canceled));
    let event = last_event(&mut core);
    assert_eq!(event, Happening::JobEnded { phase: Phase::Canceled, cancel_reason: "too dear".into() });
    report(&mut core, 0, Outcome::Value(Value::default()));
    assert_eq!(states(&core), [TaskState::Canceled; 3]);
}

#[test]
fn without_grace_the_job_is_over_at_once() {
    let mut core = core();
    let effects = cancel(&mut core, CANCELED_US, "", 0).unwrap();
    assert_eq!((told(&effects), phase(&core)), (vec![('c', vec![0, 1, 2])], Phase::Canceled));
    let again = cancel(&mut core, CANCELED_US, "", 0).unwrap_err();
    assert_eq!(again, Refused::Over { job: id(), state: JobPhase::Canceled });
}

#[test]
fn who_cancels_again_can_shorten_the_grace_and_not_lengthen_it() {
    let mut core = core();
    cancel(&mut core, CANCELED_US, "first", 10_000).unwrap();
    assert!(told(&cancel(&mut core, CANCELED_US, "second", 60_000).unwrap()).is_empty());
    core.handle(CANCELED_US + 10_000_000, Input::Tick).unwrap();
    assert_eq!(phase(&core), Phase::Canceled);
    assert!(reason(&core, 0).ends_with(": first"));

    let mut core = self::core();
    cancel(&mut core, CANCELED_US, "", 10_000).unwrap();
    let effects = cancel(&mut core, CANCELED_US + 1, "", 0).unwrap();
    assert_eq!((told(&effects), phase(&core)), (vec![('c', vec![0, 1])], Phase::Canceled));
}

#[test]
fn a_worker_that_goes_takes_what_was_told_to_stop_with_it() {
    let mut core = core();
    cancel(&mut core, CANCELED_US, "", 10_000).unwrap();
    core.handle(
        CANCELED_US + 1,
        Input::WorkerGone { worker: WORKER, reason: "dead".into(), never_told: Vec::new() },
    )
    .unwrap();
    assert_eq!((states(&core), phase(&core)), (vec![TaskState::Canceled; 3], Phase::Canceled));
}

#[test]
fn a_job_that_is_being_canceled_can_be_neither_deleted_nor_replaced() {
    let mut core = core();
    cancel(&mut core, CANCELED_US, "", 10_000).unwrap();
    let refused = core.handle(CANCELED_US, Input::Delete(id())).unwrap_err();
    assert_eq!(refused, Refused::NotOver { job: id(), state: JobPhase::Canceling });
}
