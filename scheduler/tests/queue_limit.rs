//! Tasks that fail because nobody has begun them in time.

use syncline_scheduler::{
    core::{Core, IfTaken, Input, Phase, StoredJob, Submission, TaskJob, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{self, graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Capacity, Failure, FailureCause, FunctionId, OnFailure, Outcome, PreparedTraining, Rules, TaskClass,
        TaskQuery, TaskState, TaskView, Work,
    },
};

use crate::cluster::stored::apply;

const NOW_US: u64 = 1_000_000;
const LIMIT_US: u64 = 5_000_000;
const WORKER: Incarnation = Incarnation(1);

fn id() -> JobId {
    "graph".parse().unwrap()
}

fn function() -> FunctionId {
    FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() }
}

/// May wait for five seconds, and be tried again once.
fn class(work: Work, on_failure: OnFailure) -> TaskClass {
    let rules = Rules { queue_limit_ms: Some(LIMIT_US / 1_000), errors: 1, on_failure, ..Rules::default() };
    TaskClass { work, rules }
}

/// A graph of one task, which nobody can run yet.
fn core(class: TaskClass) -> Core {
    let mut core = Core::new(1);
    let submission = graph_submission(&id(), 1, vec![class], vec![new_task(0)]);
    core.handle(NOW_US, Input::SubmitGraph(submission)).unwrap();
    core
}

fn call() -> Core {
    core(class(Work::Call(function()), OnFailure::FailJob))
}

fn training() -> Core {
    let job = sim::training_job(sim::training("bsp".parse().unwrap(), 64, 8));
    core(class(Work::Train(PreparedTraining::new(&job).unwrap()), OnFailure::FailJob))
}

fn tick(core: &mut Core, now_us: u64) {
    core.handle(now_us, Input::Tick).unwrap();
}

fn join(core: &mut Core, now_us: u64) {
    let capacity = Capacity { slots: 1, functions: [function()].into(), ..Capacity::default() };
    let about = WorkerInfo { capacity, ..WorkerInfo::default() };
    core.handle(now_us, Input::WorkerJoined { worker: WORKER, about }).unwrap();
}

fn view(core: &Core) -> TaskView {
    core.task_views(&id(), &TaskQuery::default(), NOW_US).unwrap().remove(0)
}

fn failed(core: &Core) -> Option<(String, String)> {
    match core.task_job(&id()).unwrap().phase() {
        Phase::Failed { code, reason } => Some((code.to_string(), reason.clone())),
        _ => None,
    }
}

#[test]
fn a_task_that_nobody_begins_in_time_fails_and_says_why_nobody_did() {
    let mut core = call();
    let reason = view(&core).reason;
    assert_eq!(reason, "there is no worker that runs tasks; it fails in 5.0 s if nobody begins it");
    tick(&mut core, NOW_US + LIMIT_US - 1);
    assert_eq!(view(&core).state, TaskState::Ready);
    tick(&mut core, NOW_US + LIMIT_US);
    let reason = "task 0: nobody has begun it within 5 s: there is no worker that runs tasks";
    assert_eq!(failed(&core), Some(("E060".into(), reason.into())), "retries do not apply");
}

#[test]
fn the_rest_of_the_graph_goes_on_where_the_task_says_so() {
    let mut core = core(class(Work::Call(function()), OnFailure::SkipDependents));
    tick(&mut core, NOW_US + LIMIT_US);
    assert_eq!(view(&core).state, TaskState::Failed);
    assert_eq!(*core.task_job(&id()).unwrap().phase(), Phase::Done);
}

#[test]
fn of_many_tasks_whose_time_ends_at_once_a_tick_fails_some_thousand_and_the_next_ones_the_rest() {
    const TASKS: usize = 10_000;
    let mut core = Core::new(1);
    let class = class(Work::Call(function()), OnFailure::SkipDependents);
    let submission = graph_submission(&id(), 1, vec![class], vec![new_task(0); TASKS]);
    core.handle(NOW_US, Input::SubmitGraph(submission)).unwrap();
    core.take_commits(NOW_US);
    let mut failed = Vec::new();
    while *core.task_job(&id()).unwrap().phase() == Phase::Running {
        tick(&mut core, NOW_US + LIMIT_US);
        let commit = core.take_commits(NOW_US + LIMIT_US).remove(&id()).unwrap();
        failed.push(commit.graph.faults.len());
    }
    assert_eq!(failed.iter().sum::<usize>(), TASKS, "each once: {failed:?}");
    assert!(failed.len() > 1 && failed.iter().all(|failed| *failed < 5_000), "{failed:?}");
    assert_eq!(*core.task_job(&id()).unwrap().phase(), Phase::Done);
}

#[test]
fn a_task_that_a_worker_has_waits_no_longer_and_its_next_attempt_waits_anew() {
    let mut core = call();
    join(&mut core, NOW_US + 1);
    tick(&mut core, NOW_US + 2 * LIMIT_US);
    assert_eq!(view(&core).state, TaskState::Leased);
    let failure =
        Failure { cause: FailureCause::Function, code: FaultCode::new("E440"), reason: "no".into() };
    let ended = vec![task_end(0, 1, Outcome::Failed(failure))];
    core.handle(NOW_US + 2 * LIMIT_US, tasks_ended(WORKER, &id(), 1, ended)).unwrap();
    core.handle(
        NOW_US + 2 * LIMIT_US,
        Input::WorkerGone { worker: WORKER, reason: "dead".into(), never_told: Vec::new() },
    )
    .unwrap();
    let ready_us = NOW_US + 3 * LIMIT_US;
    tick(&mut core, ready_us);
    assert_eq!(view(&core).state, TaskState::Ready, "the pause behind the failure is over");
    tick(&mut core, ready_us + LIMIT_US - 1);
    assert_eq!(failed(&core), None);
    tick(&mut core, ready_us + LIMIT_US);
    assert_eq!(failed(&core).unwrap().0, "E060");
}

#[test]
fn while_the_graph_is_paused_nobody_waits_too_long() {
    let mut core = call();
    core.handle(NOW_US + 1, Input::Pause { job: id(), paused: true }).unwrap();
    tick(&mut core, NOW_US + 9 * LIMIT_US);
    core.handle(NOW_US + 9 * LIMIT_US, Input::Pause { job: id(), paused: false }).unwrap();
    tick(&mut core, NOW_US + 10 * LIMIT_US - 1);
    assert_eq!(failed(&core), None);
    tick(&mut core, NOW_US + 10 * LIMIT_US);
    assert_eq!(failed(&core).unwrap().0, "E060");
}

#[test]
fn a_training_that_no_worker_joins_in_time_fails_its_task_and_is_canceled() {
    let mut core = training();
    let reason = view(&core).reason;
    assert!(reason.starts_with("job graph~0 trains for it, which is queued, and waits for"), "{reason}");
    assert!(reason.ends_with("; it fails in 5.0 s if nobody begins it"), "{reason}");
    tick(&mut core, NOW_US + LIMIT_US);
    let (code, reason) = failed(&core).unwrap();
    assert_eq!(code, "E060");
    assert!(reason.contains("1 worker: none is there"), "{reason}");
    assert_eq!(*core.job(&"graph~0".parse().unwrap()).unwrap().phase(), Phase::Canceled);
}

#[test]
fn a_training_of_a_task_that_is_paused_in_the_queue_does_not_fail_and_has_all_its_time_again_afterwards() {
    for resumed_us in [NOW_US + LIMIT_US - 1, NOW_US + 9 * LIMIT_US] {
        let mut core = training();
        let pause = |paused| Input::Pause { job: "graph~0".parse().unwrap(), paused };
        core.handle(NOW_US + 1, pause(true)).unwrap();
        assert!(!view(&core).reason.contains("it fails in"), "{}", view(&core).reason);
        tick(&mut core, resumed_us);
        assert_eq!((view(&core).state, failed(&core)), (TaskState::Training, None));
        core.handle(resumed_us, pause(false)).unwrap();
        assert!(view(&core).reason.contains("; it fails in"), "{}", view(&core).reason);
        tick(&mut core, resumed_us + LIMIT_US - 1);
        assert_eq!(failed(&core), None);
        tick(&mut core, resumed_us + LIMIT_US);
        assert_eq!(failed(&core).unwrap().0, "E060");
    }
}

#[test]
fn a_training_that_a_worker_has_joined_waits_no_longer() {
    let mut core = training();
    join(&mut core, NOW_US + 1);
    tick(&mut core, NOW_US + 2 * LIMIT_US);
    assert_eq!((view(&core).state, failed(&core)), (TaskState::Training, None));
    assert!(!view(&core).reason.contains("it fails in"), "{}", view(&core).reason);
}

#[test]
fn the_next_engine_counts_on_from_where_the_task_became_ready() {
    let mut core = call();
    let commit = core.take_commits(NOW_US).remove(&id()).unwrap();
    let mut stored = StoredJob::default();
    apply(&mut stored, commit);
    let mut next = Core::new(1);
    next.restore_tasks(TaskJob::load(&stored).unwrap());
    tick(&mut next, NOW_US + LIMIT_US - 1);
    assert_eq!(failed(&next), None);
    tick(&mut next, NOW_US + LIMIT_US);
    assert_eq!(failed(&next).unwrap().0, "E060");
}

/// A core with a training that was submitted on its own and may wait for five seconds.
fn training_of_its_own() -> (Core, JobId) {
    let mut training = sim::training("bsp".parse().unwrap(), 64, 8);
    training.queue_limit_ms = Some(LIMIT_US / 1_000);
    let spec = Box::new(sim::training_job(training));
    let id = spec.id.clone();
    let mut core = Core::new(1);
    core.handle(NOW_US, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
    (core, id)
}

#[test]
fn a_training_of_its_own_that_no_worker_joins_in_time_fails_and_says_what_was_missing() {
    let (mut core, id) = training_of_its_own();
    tick(&mut core, NOW_US + LIMIT_US - 1);
    assert_eq!(*core.job(&id).unwrap().phase(), Phase::Queued);
    tick(&mut core, NOW_US + LIMIT_US);
    let phase = core.job(&id).unwrap().phase().clone();
    let reason = "nobody has begun it within 5 s: it waits for 1 worker: none is there".to_owned();
    assert_eq!(phase, Phase::Failed { code: FaultCode::new("E060"), reason });
}

#[test]
fn a_training_of_its_own_that_a_worker_has_joined_has_no_limit_any_more() {
    let (mut core, id) = training_of_its_own();
    core.handle(NOW_US + 1, Input::WorkerJoined { worker: WORKER, about: WorkerInfo::default() }).unwrap();
    tick(&mut core, NOW_US + 2 * LIMIT_US);
    assert!(!core.job(&id).unwrap().phase().is_over());
}
