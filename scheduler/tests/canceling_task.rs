//! One task that somebody cancels while its graph goes on.

use crate::cluster::stored::apply;
use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, Refused, StoredJob, TaskCancellation, TaskJob, WorkerInfo},
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, Failure, FailureCause, FunctionId, NewTask, OnFailure, Order, Outcome, Rules,
        TaskClass, TaskIndex, TaskQuery, TaskRef, TaskState, TaskView, Value, Work,
    },
};

const WORKER: Incarnation = Incarnation(1);
const S: u64 = 1_000_000;

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// A worker with a slot for what takes nothing, task 0 and 1; 2 takes what 0 gives, 3 what 1 gives. Each may
/// fail three times.
struct World {
    core: Core,
    now_us: u64,
}

impl World {
    fn new(on_failure: OnFailure) -> Self {
        let mut world = Self { core: Core::new(1), now_us: S };
        let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
        let capacity = Capacity { slots: 1, functions: [function.clone()].into(), ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        world.give(Input::WorkerJoined { worker: WORKER, about });
        let rules = Rules { errors: 3, crashes: 3, on_failure, ..Rules::default() };
        let classes = vec![TaskClass { work: Work::Call(function), rules }];
        let takes = |n| NewTask { args: vec![Arg::Output(TaskRef::Task(TaskIndex(n)))], ..new_task(0) };
        let tasks = vec![new_task(0), new_task(0), takes(0), takes(1)];
        world.give(Input::SubmitGraph(graph_submission(&id(), 1, classes, tasks)));
        assert_eq!((world.state(0), world.state(1)), (TaskState::Leased, TaskState::Ready));
        world
    }

    fn give(&mut self, input: Input) -> Vec<Told> {
        self.core.handle(self.now_us, input).unwrap().iter().flat_map(told).collect()
    }

    fn cancel(&mut self, task: u32, grace_ms: u64) -> Vec<Told> {
        let cancellation = cancellation(task, grace_ms);
        self.give(Input::CancelTask(cancellation))
    }

    fn refused(&mut self, task: u32) -> Refused {
        self.core.handle(self.now_us, Input::CancelTask(cancellation(task, 0))).unwrap_err()
    }

    fn end(&mut self, task: u32, outcome: Outcome) -> Vec<Told> {
        let attempt = self.view(task).attempts;
        self.give(tasks_ended(WORKER, &id(), 1, vec![task_end(task, attempt, outcome)]))
    }

    fn view(&self, task: u32) -> TaskView {
        self.core.task_views(&id(), &TaskQuery::default(), self.now_us).unwrap().remove(task as usize)
    }

    fn state(&self, task: u32) -> TaskState {
        self.view(task).state
    }

    fn phase(&self) -> &Phase {
        self.core.task_job(&id()).unwrap().phase()
    }

    #[track_caller]
    fn is_canceled(&self, task: u32) {
        let view = self.view(task);
        assert_eq!(view.state, TaskState::Failed);
        assert_eq!(view.code.unwrap().to_string(), "E602");
        assert_eq!(view.reason, "it failed: [E602] somebody canceled it: too slow");
    }
}

fn cancellation(task: u32, grace_ms: u64) -> TaskCancellation {
    TaskCancellation { job: id().into(), task: TaskIndex(task), reason: "too slow".into(), grace_ms }
}

/// `r` to run, `c` recall, `s` stop, and which task.
type Told = (char, u32);

fn told(effect: &Effect) -> Vec<Told> {
    let Effect::Orders { orders, .. } = effect else { return Vec::new() };
    let one = |order: &Order| match order {
        Order::Run(group) => group.tasks.iter().map(|order| ('r', order.task.0)).collect::<Vec<_>>(),
        Order::Recall(of) => of.tasks.iter().map(|of| ('c', of.task.0)).collect(),
        Order::Stop(of) => of.tasks.iter().map(|of| ('s', of.task.0)).collect(),
        Order::GiveBack(of) => panic!("{of:?}"),
    };
    orders.iter().flat_map(one).collect()
}

fn value() -> Outcome {
    Outcome::Value(Value::default())
}

#[test]
fn what_runs_is_told_to_stop_and_fails_when_it_says_that_it_has_without_another_attempt() {
    let failed =
        Failure { cause: FailureCause::Function, code: "E440".parse().unwrap(), reason: "no".into() };
    for outcome in [Outcome::Stopped, Outcome::NotBegun, Outcome::GivenBack, Outcome::Failed(failed)] {
        let mut world = World::new(OnFailure::SkipDependents);
        assert_eq!(world.cancel(0, 10_000), [('s', 0)]);
        assert_eq!(world.cancel(0, 20_000), [], "its time gets no longer");
        assert!(world.view(0).reason.ends_with("it is given up in 10.0 s"), "{}", world.view(0).reason);
        world.end(0, outcome);
        world.is_canceled(0);
        assert_eq!((world.state(1), world.state(2)), (TaskState::Leased, TaskState::Skipped));
        world.end(1, value());
        world.end(3, value());
        assert_eq!(*world.phase(), Phase::Done, "the others go on");
    }
}

#[test]
fn a_value_counts_that_is_given_in_time() {
    let mut world = World::new(OnFailure::FailJob);
    world.cancel(0, 10_000);
    world.end(0, value());
    assert_eq!(world.state(0), TaskState::Done);
    world.now_us += 11 * S;
    world.give(Input::Tick);
    assert_eq!((world.state(0), world.phase()), (TaskState::Done, &Phase::Running));
}

#[test]
fn what_does_not_stop_is_given_up_when_its_time_is_over_and_without_grace_at_once() {
    let mut world = World::new(OnFailure::SkipDependents);
    world.cancel(0, 10_000);
    world.now_us += 10 * S;
    assert_eq!(world.give(Input::Tick)[0], ('c', 0));
    world.is_canceled(0);
    let mut world = World::new(OnFailure::SkipDependents);
    world.cancel(0, 10_000);
    assert_eq!(world.cancel(0, 0)[0], ('c', 0));
    world.is_canceled(0);
}

#[test]
fn what_does_not_run_fails_at_once() {
    let mut world = World::new(OnFailure::SkipDependents);
    assert_eq!(world.cancel(1, 10_000), [], "it is ready");
    world.is_canceled(1);
    assert_eq!(world.state(3), TaskState::Skipped);
    world.cancel(2, 10_000);
    world.is_canceled(2);
    let error = Failure { cause: FailureCause::Function, code: "E440".parse().unwrap(), reason: "no".into() };
    world.end(0, Outcome::Failed(error));
    assert_eq!(world.state(0), TaskState::Backoff);
    world.cancel(0, 10_000);
    world.is_canceled(0);
    assert_eq!(*world.phase(), Phase::Done);
}

#[test]
fn a_worker_that_is_lost_meanwhile_costs_no_further_attempt() {
    for gone in [
        Input::WorkerGone { worker: WORKER, reason: "dead".into(), never_told: Vec::new() },
        Input::WorkerLeft { worker: WORKER, begun: Vec::new() },
    ] {
        let mut world = World::new(OnFailure::SkipDependents);
        world.cancel(0, 10_000);
        world.give(gone);
        world.is_canceled(0);
    }
}

#[test]
fn the_job_fails_with_it_unless_the_task_says_otherwise() {
    let mut world = World::new(OnFailure::FailJob);
    world.cancel(0, 0);
    let Phase::Failed { code, reason } = world.phase() else { panic!("{:?}", world.phase()) };
    assert_eq!(
        (code.to_string(), reason.as_str()),
        ("E602".into(), "task 0: somebody canceled it: too slow")
    );
}

#[test]
fn a_task_that_is_over_or_that_is_not_there_is_refused_and_one_that_was_canceled_is_not() {
    let mut world = World::new(OnFailure::SkipDependents);
    world.end(0, value());
    assert_eq!(
        world.refused(0).to_string(),
        "[E599] task 0 of job graph is over (done): there is nothing to cancel"
    );
    assert_eq!(world.refused(4).to_string(), "[E138] job graph has no task 4");
    world.cancel(3, 0);
    assert_eq!(world.cancel(3, 0), [], "whoever has lost the answer asks again");
}

#[test]
fn another_engine_tells_the_worker_again_and_gives_the_task_up_in_time() {
    let mut world = World::new(OnFailure::SkipDependents);
    world.cancel(0, 10_000);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.core.take_commits(world.now_us).remove(&id()).unwrap());
    let mut next = Core::new(1);
    let job = TaskJob::load(&stored).unwrap();
    assert_eq!(Some(&job), world.core.task_job(&id()));
    let effects = next.restore_tasks(job);
    assert_eq!(effects.iter().flat_map(told).collect::<Vec<_>>().last(), Some(&('s', 0)));
    world.core = next;
    world.now_us += 10 * S;
    world.give(Input::Tick);
    world.is_canceled(0);
}
