//! Calls that came back from a worker, because its machine failed them or they could not begin there: who
//! gets them next.

use std::collections::BTreeMap;

use proptest::prelude::*;
use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, TaskJob, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    samples::splitmix64,
    sim::{Shell, TaskPlane, graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, Failure, FailureCause, FunctionId, NewTask, Order, Outcome, Rules, TaskClass,
        TaskIndex, TaskQuery, TaskRef, TaskState, Value, Work,
    },
};

use crate::{
    calls::{CallWorker, Kind, capacity, class},
    cluster::stored::StoredGraphs,
};

/// The lower number: it is asked first.
const BAD: Incarnation = Incarnation(1);
const GOOD: Incarnation = Incarnation(2);
const NONCE: u32 = 1;
/// Longer than the pause before the second attempt, and the third.
const PAUSE_US: u64 = 500_000;
const HALF_A_MINUTE_US: u64 = 30_000_000;

fn id(name: &str) -> JobId {
    name.parse().unwrap()
}

fn call(function: &str) -> FunctionId {
    FunctionId { name: function.parse().unwrap(), signature: 1, types: String::new() }
}

/// An attempt that the worker's machine failed.
fn failed() -> Outcome {
    let code = FaultCode::new("E320");
    Outcome::Failed(Failure { cause: FailureCause::Worker, code, reason: "no ONNX Runtime".into() })
}

fn done() -> Outcome {
    Outcome::Value(Value::default())
}

/// A core, and who was given what of which job.
struct World {
    plane: TaskPlane<StoredGraphs>,
    now_us: u64,
}

type Given = Vec<(Incarnation, String, u32)>;

impl World {
    /// Workers of so many slots each, in the order of their numbers.
    fn new(slots: &[u32]) -> Self {
        let mut world = Self { plane: TaskPlane::new(StoredGraphs::default()), now_us: 1_000_000 };
        for (n, slots) in (1..).zip(slots) {
            world.join(Incarnation(n), *slots, &["f"]);
        }
        world
    }

    fn join(&mut self, worker: Incarnation, slots: u32, functions: &[&str]) -> Given {
        let functions = functions.iter().map(|function| call(function)).collect();
        let capacity = Capacity { slots, functions, ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        self.give(Input::WorkerJoined { worker, about })
    }

    /// A job of so many calls that wait for nothing.
    fn submit(&mut self, job: &str, function: &str, tasks: usize, rules: Rules) -> Given {
        let classes = vec![TaskClass { work: Work::Call(call(function)), rules }];
        self.give(Input::SubmitGraph(graph_submission(&id(job), NONCE, classes, vec![new_task(0); tasks])))
    }

    fn give(&mut self, input: Input) -> Given {
        let TaskPlane { core, shell } = &mut self.plane;
        let effects = shell.handle(core, self.now_us, input);
        effects.into_iter().flat_map(given).collect()
    }

    /// The end of a call that a worker has.
    fn end(&mut self, worker: Incarnation, job: &str, task: u32, outcome: Outcome) -> Given {
        let query = TaskQuery::default();
        let views = self.plane.core.task_views(&id(job), &query, self.now_us).unwrap();
        let end = task_end(task, views[task as usize].attempts, outcome);
        self.give(tasks_ended(worker, &id(job), NONCE, vec![end]))
    }

    fn pass(&mut self, us: u64) -> Given {
        self.now_us += us;
        self.give(Input::Tick)
    }

    /// Another engine leads, which knows what was stored.
    fn take_over(&mut self) {
        self.plane.core = Core::new(1);
        for stored in self.plane.shell.0.values() {
            self.plane.core.restore_tasks(TaskJob::load(stored).unwrap());
        }
    }

    fn reason(&self, job: &str, task: usize) -> String {
        let query = TaskQuery::default();
        self.plane.core.task_views(&id(job), &query, self.now_us).unwrap().swap_remove(task).reason
    }

    fn state(&self, job: &str) -> TaskState {
        let query = TaskQuery::default();
        self.plane.core.task_views(&id(job), &query, self.now_us).unwrap()[0].state
    }

    /// `BAD` has failed the call, and `GOOD` has a long one.
    fn with_good_one_busy(outcome: Outcome) -> Self {
        let mut world = Self::new(&[1, 1]);
        assert_eq!(world.submit("call", "f", 1, Rules::default()), [(BAD, "call".into(), 0)]);
        assert_eq!(world.submit("long", "f", 1, Rules::default()), [(GOOD, "long".into(), 0)]);
        assert_eq!(world.end(BAD, "call", 0, outcome), []);
        assert_eq!(world.pass(PAUSE_US), [], "it waits for the one that is busy");
        world
    }
}

/// What is to run, and where. Nobody is asked for anything else here.
fn given(effect: Effect) -> Given {
    let Effect::Orders { worker, orders } = effect else { return Vec::new() };
    let one = |order: Order| match order {
        Order::Run(group) => {
            let job = group.submission.job.to_string();
            group.tasks.iter().map(|order| (worker, job.clone(), order.task.0)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    orders.into_iter().flat_map(one).collect()
}

#[test]
fn a_call_that_a_machine_failed_or_gave_back_waits_for_another_worker_that_is_busy() {
    for outcome in [failed(), Outcome::NotBegun] {
        let mut world = World::with_good_one_busy(outcome);
        let reason = world.reason("call", 0);
        assert_eq!(
            reason,
            "all slots are taken: w2 has f (task 0 of long); w1 comes last, because it, or what ran there last, \
             failed by the machine or could not begin"
        );
        assert_eq!(world.end(GOOD, "long", 0, done()), [(GOOD, "call".into(), 0)]);
    }
}

#[test]
fn the_only_worker_that_could_have_it_has_it_again() {
    let mut world = World::new(&[1]);
    world.join(GOOD, 4, &["g"]);
    world.submit("call", "f", 1, Rules::default());
    assert_eq!(world.end(BAD, "call", 0, Outcome::NotBegun), [(BAD, "call".into(), 0)]);
    assert_eq!(world.end(BAD, "call", 0, failed()), []);
    assert_eq!(world.pass(PAUSE_US), [(BAD, "call".into(), 0)]);
}

#[test]
fn where_it_came_back_from_all_they_have_it_in_turn() {
    let mut world = World::new(&[1, 1]);
    world.submit("call", "f", 1, Rules::default());
    assert_eq!(world.end(BAD, "call", 0, Outcome::NotBegun), [(GOOD, "call".into(), 0)]);
    assert_eq!(world.end(GOOD, "call", 0, Outcome::NotBegun), [(BAD, "call".into(), 0)]);
    assert_eq!(world.end(BAD, "call", 0, Outcome::NotBegun), [(GOOD, "call".into(), 0)]);
}

#[test]
fn one_that_others_have_no_time_for_goes_back_after_half_a_minute_but_its_last_attempt_does_not() {
    let mut world = World::with_good_one_busy(failed());
    assert_eq!(world.pass(HALF_A_MINUTE_US), [(BAD, "call".into(), 0)]);
    assert_eq!(world.end(BAD, "call", 0, failed()), []);
    assert_eq!(world.pass(PAUSE_US), []);
    assert_eq!(world.pass(HALF_A_MINUTE_US), [(BAD, "call".into(), 0)]);
    // The third failure: the fourth attempt is the last.
    assert_eq!(world.end(BAD, "call", 0, failed()), []);
    assert_eq!(world.pass(100 * HALF_A_MINUTE_US), []);
    assert_eq!(world.end(GOOD, "long", 0, done()), [(GOOD, "call".into(), 0)]);
}

#[test]
fn the_last_attempt_is_tried_where_it_failed_once_nobody_else_is_there() {
    let mut world = World::with_good_one_busy(failed());
    let gone = Input::WorkerGone { worker: GOOD, reason: "dead".into(), never_told: Vec::new() };
    world.give(gone);
    assert_eq!(world.state("call"), TaskState::Leased);
    assert_eq!(world.state("long"), TaskState::Backoff);
}

#[test]
fn one_that_has_waited_is_not_hidden_by_many_that_go_on_waiting_for_their_last_attempt() {
    const MANY: u32 = 32;
    let mut world = World::new(&[]);
    world.join(GOOD, 1, &["f"]);
    world.submit("long", "f", 1, Rules::default());
    world.join(BAD, 1, &["f"]);
    world.submit("calls", "f", MANY as usize + 1, Rules { crashes: 1, ..Rules::default() });
    for task in 0..MANY {
        assert_eq!(world.end(BAD, "calls", task, failed()), [(BAD, "calls".into(), task + 1)]);
    }
    assert_eq!(world.end(BAD, "calls", MANY, Outcome::NotBegun), []);
    let given: Given = (0..3).flat_map(|_| world.pass(HALF_A_MINUTE_US)).collect();
    assert_eq!(given, [(BAD, "calls".into(), MANY)]);
}

#[test]
fn another_engine_knows_from_where_it_came_back() {
    let mut world = World::with_good_one_busy(failed());
    world.take_over();
    assert_eq!(world.join(BAD, 1, &["f"]), []);
    assert_eq!(world.end(GOOD, "long", 0, done()), [(GOOD, "call".into(), 0)]);
}

#[test]
fn half_a_minute_is_over_in_its_time_also_where_the_clock_was_set_back() {
    let mut world = World::with_good_one_busy(failed());
    world.take_over();
    world.plane.core.discount_downtime(world.now_us, 1);
    world.now_us = 1;
    assert_eq!(world.join(BAD, 1, &["f"]), []);
    // And the engine behind that one, which takes over at once.
    world.take_over();
    assert_eq!(world.join(BAD, 1, &["f"]), []);
    assert_eq!(world.pass(HALF_A_MINUTE_US), [(BAD, "call".into(), 0)]);
}

#[test]
fn what_waits_for_others_keeps_a_worker_from_nothing_behind_it() {
    let mut world = World::with_good_one_busy(failed());
    assert_eq!(world.submit("behind", "f", 1, Rules::default()), [(BAD, "behind".into(), 0)]);
}

#[test]
fn a_worker_from_which_three_in_a_row_came_back_takes_one_at_a_time_until_one_does_not() {
    let mut world = World::new(&[8]);
    let all: Given = (0..8).map(|task| (BAD, "calls".into(), task)).collect();
    assert_eq!(world.submit("calls", "f", 100, Rules::default()), all);
    let mut next = 8;
    // All that it has comes back.
    for task in 0..7 {
        let given = world.end(BAD, "calls", task, failed());
        let taken = if task < 2 { vec![(BAD, "calls".to_owned(), next)] } else { Vec::new() };
        assert_eq!(given, taken, "{task}");
        next += u32::from(task < 2);
    }
    assert_eq!(world.end(BAD, "calls", 7, failed()), []);
    assert_eq!(world.end(BAD, "calls", 8, failed()), []);
    assert_eq!(world.end(BAD, "calls", 9, failed()), [(BAD, "calls".into(), 10)]);
    let reason = world.reason("calls", 50);
    let end = "w1 has f (task 10 of calls), and takes one call at a time, because the last 10 failed by its machine \
               or could not begin";
    assert!(reason.ends_with(end), "{reason}");
    assert_eq!(world.end(BAD, "calls", 10, failed()), [(BAD, "calls".into(), 11)]);
    assert!(world.end(BAD, "calls", 11, done()).len() >= 8, "all its slots");
}

#[test]
fn one_that_takes_one_at_a_time_takes_more_when_nothing_came_back_for_half_a_minute() {
    let mut world = World::new(&[4]);
    world.submit("calls", "f", 100, Rules::default());
    for task in 0..4 {
        world.end(BAD, "calls", task, Outcome::NotBegun);
    }
    let held = |world: &World| {
        let query = TaskQuery { state: Some(TaskState::Leased), ..TaskQuery::default() };
        world.plane.core.task_views(&id("calls"), &query, world.now_us).unwrap().len()
    };
    let before = held(&world);
    world.pass(HALF_A_MINUTE_US - 1);
    assert!(held(&world) <= before && before < 4, "{before}");
    world.pass(1);
    assert_eq!(held(&world), 4, "what it has may take hours");
}

/// Workers of which one is good, and what they have.
struct Fleet {
    plane: TaskPlane<StoredGraphs>,
    workers: BTreeMap<Incarnation, CallWorker>,
    good: Incarnation,
    now_us: u64,
    random: u64,
}

impl Fleet {
    fn new(bad: u64, good: u64, slots: u32, seed: u64) -> Self {
        let plane = TaskPlane::new(StoredGraphs::default());
        let good = Incarnation(1 + good % (bad + 1));
        let mut fleet = Self { plane, workers: BTreeMap::new(), good, now_us: 1_000_000, random: seed };
        for n in 1..=bad + 1 {
            let worker = Incarnation(n);
            fleet.workers.insert(worker, CallWorker::default());
            let about = WorkerInfo { capacity: capacity(slots), ..WorkerInfo::default() };
            fleet.give(Input::WorkerJoined { worker, about });
        }
        fleet
    }

    fn draw(&mut self, below: u64) -> u64 {
        splitmix64(&mut self.random) % below
    }

    fn give(&mut self, input: Input) {
        let TaskPlane { core, shell } = &mut self.plane;
        for effect in shell.handle(core, self.now_us, input) {
            if let Effect::Orders { worker, orders } = effect {
                self.workers.get_mut(&worker).unwrap().inbox.extend(orders);
            }
        }
    }

    /// All that a worker has ends: where it is good, in a value.
    fn run(&mut self, id: Incarnation) {
        self.workers.get_mut(&id).unwrap().read_orders();
        while let Some(key) = self.workers[&id].runnable().first().cloned() {
            let outcome = if self.draw(4) == 0 { Outcome::NotBegun } else { failed() };
            let worker = self.workers.get_mut(&id).unwrap();
            if id == self.good { worker.run(&key) } else { worker.end_with(&key, outcome) }
        }
        let worker = self.workers.get_mut(&id).unwrap();
        let groups = worker.unacknowledged();
        worker.reports.clear();
        self.give(Input::TasksEnded { worker: id, groups, under_another: false });
    }

    /// Runs a graph to its end.
    fn run_graph(&mut self, job: &str, rules: Rules, tasks: Vec<NewTask>) -> Phase {
        let job = id(job);
        let classes = vec![TaskClass { rules, ..class() }];
        self.give(Input::SubmitGraph(graph_submission(&job, NONCE, classes, tasks)));
        for step in 0.. {
            let phase = self.plane.core.task_job(&job).unwrap().phase();
            if phase.is_over() {
                return phase.clone();
            }
            assert!(step < 10_000, "it hangs");
            self.now_us += self.random % 1_000_000;
            self.give(Input::Tick);
            let nth = 1 + self.draw(self.workers.len() as u64);
            self.run(Incarnation(nth));
            self.run(self.good);
        }
        unreachable!()
    }
}

fn graph(inputs: &[Vec<prop::sample::Index>]) -> Vec<NewTask> {
    let task = |(task, inputs): (usize, &Vec<prop::sample::Index>)| {
        let mut args = vec![Arg::Value(Kind::Sum.bytes())];
        let inputs = inputs.iter().filter(|_| task > 0).map(|input| TaskIndex(input.index(task) as u32));
        args.extend(inputs.map(|input| Arg::Output(TaskRef::Task(input))));
        NewTask { args, ..new_task(0) }
    };
    inputs.iter().enumerate().map(task).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_is_done_where_one_worker_is_good_and_as_many_fail_all_as_its_tasks_may_be_tried_again(
        inputs in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 1..40),
        bad in 1u64..=3,
        good: u64,
        slots in 1u32..5,
        seed: u64,
    ) {
        let mut fleet = Fleet::new(bad, good, slots, seed);
        prop_assert_eq!(fleet.run_graph("graph", Rules::default(), graph(&inputs)), Phase::Done);
    }

    #[test]
    fn a_graph_is_done_where_one_worker_is_good_however_many_others_have_failed_what_they_ran_last(
        inputs in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 1..40),
        bad in 4u64..12,
        good: u64,
        slots in 1u32..5,
        seed: u64,
    ) {
        let mut fleet = Fleet::new(bad, good, slots, seed);
        let patient = Rules { crashes: 1_000, ..Rules::default() };
        let many = vec![Vec::new(); 2 * (bad + 1) as usize];
        prop_assert_eq!(fleet.run_graph("first", patient, graph(&many)), Phase::Done);
        prop_assert_eq!(fleet.run_graph("graph", Rules::default(), graph(&inputs)), Phase::Done);
    }
}
