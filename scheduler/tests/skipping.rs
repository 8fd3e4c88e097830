//! Tasks that are skipped or canceled because another failed: what people are told of them, and of the job
//! meanwhile.

use syncline_scheduler::{
    core::{Core, Input, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, Failure, FailureCause, FunctionId, Gives, NewTask, OnFailure, Outcome, Rules, Spawned,
        TaskClass, TaskIndex, TaskQuery, TaskRef, TaskView, Work,
    },
};

const WORKER: Incarnation = Incarnation(1);

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// Task 0, which its worker has, and `behind` more, each of which takes what the one before it gives.
fn chain(behind: u32) -> Core {
    let takes = |before| NewTask { args: vec![Arg::Output(TaskRef::New(before))], ..new_task(0) };
    core_of(OnFailure::SkipDependents, [vec![new_task(0)], (0..behind).map(takes).collect()].concat())
}

/// One worker of one slot, and a graph of one class.
fn core_of(on_failure: OnFailure, tasks: Vec<NewTask>) -> Core {
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
    let capacity = Capacity { slots: 1, functions: [function.clone()].into(), ..Capacity::default() };
    let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
    let mut core = Core::new(1);
    core.handle(1, Input::WorkerJoined { worker: WORKER, about }).unwrap();
    let rules = Rules { on_failure, errors: 0, ..Rules::default() };
    let class = TaskClass { work: Work::Call(function), rules };
    core.handle(2, Input::SubmitGraph(graph_submission(&id(), 1, vec![class], tasks))).unwrap();
    core
}

fn view(core: &Core, task: u32) -> TaskView {
    let query = TaskQuery { first: TaskIndex(task), limit: 1, ..TaskQuery::default() };
    core.task_views(&id(), &query, 9).unwrap().remove(0)
}

fn reason(core: &Core, task: u32) -> String {
    view(core, task).reason
}

#[test]
fn whoever_gives_what_another_gives_is_told_why_that_gave_nothing_also_when_the_job_is_over() {
    let mut core = chain(0);
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
    let rules = Rules { on_failure: OnFailure::SkipDependents, errors: 0, ..Rules::default() };
    let takes = NewTask { args: vec![Arg::Output(TaskRef::New(0))], ..new_task(0) };
    let spawned = Spawned {
        classes: vec![TaskClass { work: Work::Call(function), rules }],
        tasks: vec![new_task(0), takes],
        gives: Gives::New(1),
    };
    let continued = vec![task_end(0, 1, Outcome::Spawned(Box::new(spawned)))];
    core.handle(3, tasks_ended(WORKER, &id(), 1, continued)).unwrap();
    let failure =
        Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: "no disk".into() };
    core.handle(4, tasks_ended(WORKER, &id(), 1, vec![task_end(1, 1, Outcome::Failed(failure))])).unwrap();
    let why = "it gives what task 2 gives, which is skipped, because task 1 is failed: [E440] no disk";
    assert_eq!(reason(&core, 0), why);
}

#[test]
fn whoever_was_skipped_far_behind_a_failure_is_told_with_the_failure() {
    let mut core = chain(3);
    let failure =
        Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: "no disk".into() };
    let ended = vec![task_end(0, 1, Outcome::Failed(failure))];
    core.handle(3, tasks_ended(WORKER, &id(), 1, ended)).unwrap();
    assert_eq!(reason(&core, 1), "it needs task 0, which is failed: [E440] no disk");
    assert_eq!(
        reason(&core, 3),
        "it needs task 2, which is skipped, because task 0 is failed: [E440] no disk"
    );
    assert_eq!([0, 3].map(|task| view(&core, task).code), [Some(FaultCode::new("E440")); 2]);
}

#[test]
fn whoever_is_canceled_because_another_failed_the_job_is_told_with_the_failure() {
    let mut core = core_of(OnFailure::FailJob, vec![new_task(0), new_task(0)]);
    let failure =
        Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: "no disk".into() };
    core.handle(3, tasks_ended(WORKER, &id(), 1, vec![task_end(0, 1, Outcome::Failed(failure))])).unwrap();
    assert_eq!(reason(&core, 1), "the job failed before it could end: [E440] task 0: no disk");
    assert_eq!(view(&core, 1).code, Some(FaultCode::new("E440")));
}

#[test]
fn a_code_that_a_worker_put_in_front_of_its_words_is_told_once_wherever_they_are_repeated() {
    let code = FaultCode::new("E443");
    let late = "[E443] f ran longer than 5 ms";
    let core = |on_failure, behind: &[NewTask]| {
        let mut core = core_of(on_failure, [&[new_task(0)], behind].concat());
        let failure = Failure { cause: FailureCause::Function, code, reason: late.into() };
        core.handle(3, tasks_ended(WORKER, &id(), 1, vec![task_end(0, 1, Outcome::Failed(failure))]))
            .unwrap();
        core
    };
    let takes = NewTask { args: vec![Arg::Output(TaskRef::New(0))], ..new_task(0) };
    let skipped = core(OnFailure::SkipDependents, &[takes]);
    let ended = core(OnFailure::FailJob, &[new_task(0)]);
    let reasons = [reason(&skipped, 0), reason(&skipped, 1), reason(&ended, 0), reason(&ended, 1)];
    assert_eq!(
        reasons,
        [
            format!("it failed: {late}"),
            format!("it needs task 0, which is failed: {late}"),
            format!("it failed: {late}"),
            format!("the job failed before it could end: task 0: {late}"),
        ]
    );
}
