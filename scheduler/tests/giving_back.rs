//! What a worker has not begun, when it leaves, or while something long keeps it waiting.

use syncline_scheduler::{
    core::{Core, Effect, Input, WorkerInfo},
    ids::{Incarnation, JobId, SubmissionId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Attempt, Attempts, Capacity, FunctionId, Needs, Order, Outcome, Rules, TaskClass, TaskIndex,
        TaskQuery, TaskState, TaskView, Value, Work,
    },
};

const BUSY: Incarnation = Incarnation(1);
const OTHER: Incarnation = Incarnation(2);
const NONCE: u32 = 1;
const MS: u64 = 1_000;

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// Tasks that take so many slots.
fn class(slots: u32) -> TaskClass {
    let work = Work::Call(FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() });
    let needs = Needs { slots, ..Needs::default() };
    TaskClass { work, rules: Rules { needs, ..Rules::default() } }
}

struct World {
    core: Core,
    now_us: u64,
}

impl World {
    /// A worker that has ended one task of a microsecond, and so was given the other nine at once, of which
    /// it begins one.
    fn new() -> Self {
        let mut world = Self { core: Core::new(1), now_us: MS };
        world.join(BUSY, "f");
        let work = Work::Call(FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() });
        let classes = vec![TaskClass { work, rules: Rules { crashes: 0, ..Rules::default() } }];
        let submission = graph_submission(&id(), NONCE, classes, vec![new_task(0); 10]);
        let first = world.give(Input::SubmitGraph(submission));
        assert_eq!(first, [(BUSY, 'r', vec![(0, 1)])]);
        let ahead: Vec<(u32, u16)> = (1..10).map(|task| (task, 1)).collect();
        assert_eq!(world.end(BUSY, &[(0, 1)], &Outcome::Value(Value::default())), [(BUSY, 'r', ahead)]);
        world
    }

    fn join(&mut self, worker: Incarnation, function: &str) -> Vec<Told> {
        self.join_with(worker, function, 1)
    }

    fn join_with(&mut self, worker: Incarnation, function: &str, slots: u32) -> Vec<Told> {
        let function = FunctionId { name: function.parse().unwrap(), signature: 1, types: String::new() };
        let capacity = Capacity { slots, functions: [function].into(), ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        self.give(Input::WorkerJoined { worker, about })
    }

    /// A worker of two slots with a task of one slot that has no end, and one of two slots that waits there
    /// for both.
    fn with_wide_task_behind_long_one() -> Self {
        let mut world = Self { core: Core::new(1), now_us: MS };
        world.join_with(BUSY, "f", 2);
        let tasks = vec![new_task(0), new_task(1)];
        let submission = graph_submission(&id(), NONCE, vec![class(1), class(2)], tasks);
        let given = world.give(Input::SubmitGraph(submission));
        let tasks: Vec<_> = given.iter().flat_map(|(_, _, tasks)| tasks).collect();
        assert_eq!(tasks, [&(0, 1), &(1, 1)]);
        world
    }

    fn give(&mut self, input: Input) -> Vec<Told> {
        let effects = self.core.handle(self.now_us, input).unwrap();
        self.core.take_commits(self.now_us);
        effects.into_iter().flat_map(told).collect()
    }

    fn tick_after(&mut self, pause_us: u64) -> Vec<Told> {
        self.now_us += pause_us;
        self.give(Input::Tick)
    }

    fn end(&mut self, worker: Incarnation, tasks: &[(u32, u16)], outcome: &Outcome) -> Vec<Told> {
        let end = |(task, attempt): &(u32, u16)| task_end(*task, *attempt, outcome.clone());
        self.give(tasks_ended(worker, &id(), NONCE, tasks.iter().map(end).collect()))
    }

    fn failed(&self) -> Vec<u32> {
        let is_failed = |view: &TaskView| view.state == TaskState::Failed;
        self.views().iter().filter(|view| is_failed(view)).map(|view| view.task.0).collect()
    }

    fn views(&self) -> Vec<TaskView> {
        self.core.task_views(&id(), &TaskQuery::default(), self.now_us).unwrap()
    }
}

/// Whom, what, and which attempts.
type Told = (Incarnation, char, Vec<(u32, u16)>);

fn told(effect: Effect) -> Vec<Told> {
    let Effect::Orders { worker, orders } = effect else { return Vec::new() };
    let plain = |tasks: &[Attempt]| tasks.iter().map(|of| (of.task.0, of.attempt)).collect();
    let one = |order: &Order| match order {
        Order::Run(group) => {
            (worker, 'r', group.tasks.iter().map(|order| (order.task.0, order.attempt)).collect())
        }
        Order::GiveBack(asked) => (worker, 'g', plain(&asked.tasks)),
        Order::Recall(of) | Order::Stop(of) => panic!("{of:?}"),
    };
    orders.iter().map(one).collect()
}

fn done() -> Outcome {
    Outcome::Value(Value::default())
}

#[test]
fn what_came_back_from_a_worker_is_asked_back_for_it_once_it_has_waited_for_others() {
    let mut world = World { core: Core::new(1), now_us: MS };
    world.join(BUSY, "f");
    world.join(OTHER, "f");
    let submission = graph_submission(&id(), NONCE, vec![class(1)], vec![new_task(0); 5]);
    let first = world.give(Input::SubmitGraph(submission));
    assert_eq!(first, [(BUSY, 'r', vec![(0, 1)]), (OTHER, 'r', vec![(1, 1)])]);
    assert_eq!(world.end(OTHER, &[(1, 1)], &Outcome::NotBegun), [(OTHER, 'r', vec![(2, 1)])]);
    // Both wait there behind what it takes for short.
    assert_eq!(world.end(BUSY, &[(0, 1)], &done()), [(BUSY, 'r', vec![(1, 2), (3, 1)])]);
    assert_eq!(world.end(OTHER, &[(2, 1)], &done()), [(OTHER, 'r', vec![(4, 1)])]);
    assert_eq!(world.end(OTHER, &[(4, 1)], &done()), []);
    assert_eq!(
        world.tick_after(500 * MS),
        [(BUSY, 'g', vec![(3, 1)])],
        "1 came back from the one that is idle"
    );
    assert_eq!(world.tick_after(30_000 * MS), [(BUSY, 'g', vec![(1, 2), (3, 1)])]);
}

#[test]
fn what_waits_behind_a_long_task_goes_to_a_worker_that_is_idle_and_counts_as_no_attempt() {
    let mut world = World::new();
    assert_eq!(world.tick_after(500 * MS), [], "nobody else could do it");
    assert_eq!(world.join(OTHER, "g"), [], "that one has not the function");
    assert_eq!(world.tick_after(MS), []);
    world.give(Input::WorkerGone { worker: OTHER, reason: "dead".into(), never_told: Vec::new() });
    let all: Vec<(u32, u16)> = (1..10).map(|task| (task, 1)).collect();
    assert_eq!(world.join(OTHER, "f"), [(BUSY, 'g', all)], "which one has begun its worker knows");
    assert_eq!(world.tick_after(500 * MS), [], "it is asked once");

    // It has begun task 1.
    let back: Vec<(u32, u16)> = (2..10).map(|task| (task, 1)).collect();
    let again = |tasks: std::ops::Range<u32>| tasks.map(|task| (task, 2)).collect::<Vec<_>>();
    let half = again(2..6);
    assert_eq!(world.end(BUSY, &back, &Outcome::GivenBack), [(OTHER, 'r', half.clone())], "its fair part");
    assert_eq!(world.end(BUSY, &back, &Outcome::GivenBack), [], "said twice it changes nothing");
    assert_eq!(world.end(BUSY, &back, &done()), [], "nor does a late end");
    let rest = world.end(OTHER, &half, &done());
    assert!(rest.iter().all(|(worker, _, _)| *worker == OTHER), "the other one is busy still: {rest:?}");
    world.end(OTHER, &again(6..8), &done());
    world.end(OTHER, &again(8..9), &done());
    world.end(OTHER, &again(9..10), &done());
    world.end(BUSY, &[(1, 1)], &done());
    assert!(world.views().iter().all(|view| view.state == TaskState::Done), "{:?}", world.views());
}

#[test]
fn a_worker_that_was_asked_for_what_it_had_may_have_it_again() {
    let mut world = World::new();
    world.join(OTHER, "f");
    world.tick_after(500 * MS);
    let back: Vec<(u32, u16)> = (2..10).map(|task| (task, 1)).collect();
    world.end(BUSY, &back, &Outcome::GivenBack);
    let half = vec![(6, 2), (7, 2)];
    assert_eq!(world.end(BUSY, &[(1, 1)], &done()), [(BUSY, 'r', half)], "its fair part");
}

#[test]
fn what_a_worker_was_asked_for_is_no_return_though_a_call_of_it_ended_on_the_way() {
    let mut world = World::new();
    world.join(OTHER, "f");
    assert_eq!(world.tick_after(500 * MS).len(), 1);
    // It began task 2 before it was asked.
    world.end(BUSY, &[(1, 1)], &done());
    let back: Vec<(u32, u16)> = (3..10).map(|task| (task, 1)).collect();
    let again = |tasks: std::ops::Range<u32>| tasks.map(|task| (task, 2)).collect::<Vec<_>>();
    let given = world.end(BUSY, &back, &Outcome::GivenBack);
    assert_eq!(given[0], (BUSY, 'r', again(3..7)), "its fair part");
}

#[test]
fn a_wide_task_does_not_come_back_to_where_it_cannot_begin() {
    let mut world = World::with_wide_task_behind_long_one();
    world.join_with(OTHER, "f", 2);
    assert_eq!(world.tick_after(500 * MS), [(BUSY, 'g', vec![(0, 1), (1, 1)])]);
    assert_eq!(world.end(BUSY, &[(1, 1)], &Outcome::GivenBack), [(OTHER, 'r', vec![(1, 2)])]);
}

#[test]
fn a_wide_task_stays_where_it_waits_while_nobody_has_room_for_all_of_it() {
    let mut world = World::with_wide_task_behind_long_one();
    world.join_with(OTHER, "f", 2);
    let narrow = graph_submission(&"narrow".parse().unwrap(), NONCE, vec![class(1)], vec![new_task(0)]);
    assert_eq!(world.give(Input::SubmitGraph(narrow)), [(OTHER, 'r', vec![(0, 1)])]);
    assert_eq!(world.tick_after(500 * MS), [], "one slot is not enough");
    let end = task_end(0, 1, done());
    world.give(tasks_ended(OTHER, &"narrow".parse().unwrap(), NONCE, vec![end]));
    let both = [(BUSY, 'g', vec![(0, 1), (1, 1)])];
    assert_eq!(world.tick_after(MS), both, "two are");
    assert_eq!(world.tick_after(999 * MS), []);
    assert_eq!(world.tick_after(2 * MS), both, "it may have heard nothing, or had begun nothing else then");
}

#[test]
fn short_tasks_are_left_where_they_are() {
    let mut world = World::new();
    assert_eq!(world.join(OTHER, "f"), []);
    assert_eq!(world.tick_after(50 * MS), []);
    world.end(BUSY, &[(1, 1)], &done());
    assert_eq!(world.tick_after(99 * MS), [], "something has ended since");
    assert_eq!(world.tick_after(2 * MS).len(), 1);
}

#[test]
fn of_a_paused_job_nothing_is_asked_back() {
    let mut world = World::new();
    world.join(OTHER, "f");
    world.give(Input::Pause { job: id(), paused: true });
    assert_eq!(world.tick_after(500 * MS), []);
    let resumed = world.give(Input::Pause { job: id(), paused: false });
    assert_eq!(resumed.iter().map(|(worker, what, _)| (*worker, *what)).collect::<Vec<_>>(), [(BUSY, 'g')]);
}

/// Attempts at tasks of the job that was submitted with this nonce.
fn attempts(nonce: u32, tasks: impl IntoIterator<Item = (u32, u16)>) -> Attempts {
    let attempt = |(task, attempt)| Attempt { task: TaskIndex(task), attempt };
    Attempts {
        submission: SubmissionId { job: id(), nonce },
        tasks: tasks.into_iter().map(attempt).collect(),
    }
}

#[test]
fn who_leaves_fails_what_it_has_begun_where_that_must_not_begin_twice_and_nothing_else() {
    let mut world = World::new();
    world.join(OTHER, "f");
    let begun = vec![attempts(NONCE, [(1, 1)])];
    // No crash is allowed: task 1 fails, and with it the job.
    world.give(Input::WorkerLeft { worker: BUSY, begun: begun.clone() });
    assert_eq!(world.failed(), [1]);
    let reason = &world.views()[1].reason;
    assert!(reason.contains("was stopped or sent away and may have begun it"), "{reason}");

    let mut world = World::new();
    world.join(OTHER, "f");
    world.end(BUSY, &[(1, 1)], &done());
    let again: Vec<(u32, u16)> = (2..10).map(|task| (task, 2)).collect();
    // It says so of one of which the engine has heard.
    assert_eq!(world.give(Input::WorkerLeft { worker: BUSY, begun }), [(OTHER, 'r', again)]);
}

#[test]
fn who_is_gone_fails_what_it_was_told_of_where_that_must_not_begin_twice_and_nothing_else() {
    let gone = |told: std::ops::Range<u32>, nonce: u32| {
        let mut world = World::new();
        world.join(OTHER, "f");
        let tasks = (1..10).filter(|task| !told.contains(task)).map(|task| (task, 1));
        let never_told = vec![attempts(nonce, tasks)];
        let given = world.give(Input::WorkerGone { worker: BUSY, reason: "dead".into(), never_told });
        (given, world.failed())
    };
    let again: Vec<(u32, u16)> = (1..10).map(|task| (task, 2)).collect();
    assert_eq!(gone(0..0, NONCE), (vec![(OTHER, 'r', again)], vec![]));
    assert_eq!(gone(4..5, NONCE), (vec![], vec![4]), "no crash is allowed: with it the job fails");
    assert_eq!(gone(0..0, NONCE + 1), (vec![], vec![1]), "another job of the name was meant");
}

/// No worker, and a task that may be tried again so often after a loss.
fn with_one_task(crashes: u16) -> World {
    let mut world = World { core: Core::new(1), now_us: MS };
    let TaskClass { work, rules } = class(1);
    let classes = vec![TaskClass { work, rules: Rules { crashes, ..rules } }];
    world.give(Input::SubmitGraph(graph_submission(&id(), NONCE, classes, vec![new_task(0)])));
    world
}

#[test]
fn workers_that_are_stopped_one_after_the_other_cost_a_long_task_no_attempt() {
    let mut world = with_one_task(1);
    for n in 1..=4 {
        let worker = Incarnation(u64::from(n));
        assert_eq!(world.join(worker, "f"), [(worker, 'r', vec![(0, n)])]);
        let begun = vec![attempts(NONCE, [(0, n)])];
        world.give(Input::WorkerLeft { worker, begun });
    }
    assert_eq!(world.views()[0].state, TaskState::Ready);
}

#[test]
fn a_task_under_which_workers_are_stopped_again_and_again_fails_and_one_that_never_began_there_does_not() {
    let mut world = with_one_task(1);
    let mut join = (1..).map(Incarnation);
    let mut stop = |world: &mut World, begun: bool| {
        let worker = join.next().unwrap();
        world.join(worker, "f");
        let tasks = begun.then(|| (0, world.views()[0].attempts));
        world.give(Input::WorkerLeft { worker, begun: vec![attempts(NONCE, tasks)] });
        world.views()[0].state
    };
    for n in 1..=20 {
        assert_eq!(stop(&mut world, true), TaskState::Ready, "{n}");
        assert_eq!(stop(&mut world, false), TaskState::Ready, "{n}");
    }
    assert_eq!(stop(&mut world, true), TaskState::Failed);
    let view = &world.views()[0];
    assert_eq!(view.code.map(|code| code.to_string()), Some("E052".to_owned()));
    assert!(view.reason.contains("was stopped while it ran, as happened 21 times in all"), "{}", view.reason);
}
