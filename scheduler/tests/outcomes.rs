//! Tasks that take the outcomes of others: when they begin, what they are told, and when a failure still ends
//! the job.

use std::collections::BTreeSet;

use proptest::prelude::*;
use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, TaskCancellation, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, ClassIndex, Failure, FailureCause, FunctionId, Gives, NewTask, OnFailure, OneArg,
        Order, OrderArg, Outcome, Rules, Spawned, TaskClass, TaskEnd, TaskFailure, TaskIndex, TaskOrder,
        TaskQuery, TaskRef, TaskState, Value, Work,
    },
};

const WORKER: Incarnation = Incarnation(1);
const CODE: FaultCode = FaultCode::new("E440");

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// Calls whose failure fails the job, and which nothing tries again.
fn class() -> TaskClass {
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
    let rules = Rules { crashes: 0, errors: 0, ..Rules::default() };
    TaskClass { work: Work::Call(function), rules }
}

/// The same, but for what happens when they fail: what needs them is skipped.
fn skipping() -> TaskClass {
    let class = class();
    TaskClass { rules: Rules { on_failure: OnFailure::SkipDependents, ..class.rules }, ..class }
}

/// The same of a function that no worker has, which may wait for a second.
fn unknown() -> TaskClass {
    let function = FunctionId { name: "g".parse().unwrap(), signature: 1, types: String::new() };
    let rules = Rules { queue_limit_ms: Some(1_000), ..skipping().rules };
    TaskClass { work: Work::Call(function), rules }
}

fn task(args: Vec<Arg>) -> NewTask {
    NewTask { args, ..new_task(0) }
}

fn task_of(class: u16, args: Vec<Arg>) -> NewTask {
    NewTask { class: ClassIndex(class), ..task(args) }
}

fn output(task: u32) -> Arg {
    Arg::Output(TaskRef::New(task))
}

fn outcome(task: u32) -> Arg {
    Arg::Outcome(TaskRef::New(task))
}

/// One worker, and a graph.
struct Rig {
    core: Core,
    orders: Vec<Order>,
}

impl Rig {
    fn new(tasks: Vec<NewTask>) -> Self {
        let mut rig = Self { core: Core::new(1), orders: Vec::new() };
        let functions = [class().work.function().unwrap().clone()].into();
        let capacity = Capacity { slots: 16, functions, ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        rig.handle(Input::WorkerJoined { worker: WORKER, about });
        let classes = vec![class(), skipping(), unknown()];
        rig.handle(Input::SubmitGraph(graph_submission(&id(), 1, classes, tasks)));
        rig
    }

    fn handle(&mut self, input: Input) {
        for effect in self.core.handle(1, input).unwrap() {
            if let Effect::Orders { orders, .. } = effect {
                self.orders.extend(orders);
            }
        }
    }

    fn end(&mut self, task: u32, outcome: Outcome) {
        let attempt = self.order(task).attempt;
        self.handle(tasks_ended(WORKER, &id(), 1, vec![task_end(task, attempt, outcome)]));
    }

    fn fail(&mut self, task: u32) {
        let reason = "[E440] no disk".to_owned();
        self.end(task, Outcome::Failed(Failure { cause: FailureCause::Function, code: CODE, reason }));
    }

    fn cancel(&mut self, task: u32) {
        let reason = String::new();
        let task = TaskIndex(task);
        self.handle(Input::CancelTask(TaskCancellation { job: id().into(), task, reason, grace_ms: 0 }));
    }

    fn states(&self) -> Vec<TaskState> {
        let query = TaskQuery { limit: u32::MAX, ..TaskQuery::default() };
        self.core.task_views(&id(), &query, 1).unwrap().iter().map(|view| view.state).collect()
    }

    fn has_failed(&self) -> bool {
        matches!(self.phase(), Phase::Failed { .. })
    }

    /// The newest order of a task.
    fn order(&self, task: u32) -> TaskOrder {
        let run = |order: &Order| if let Order::Run(group) = order { group.tasks.clone() } else { vec![] };
        self.orders.iter().flat_map(run).rfind(|order| order.task.0 == task).expect("it is given out")
    }

    fn phase(&self) -> &Phase {
        self.core.task_job(&id()).unwrap().phase()
    }
}

fn failure(code: Option<FaultCode>, reason: &str, attempts: u16) -> OneArg {
    OneArg::Failure(TaskFailure { code, reason: reason.to_owned(), attempts })
}

fn nothing() -> Outcome {
    Outcome::Value(Value::default())
}

#[test]
fn a_failure_goes_to_who_takes_the_outcome_and_the_job_goes_on() {
    let mut rig = Rig::new(vec![task(vec![]), task(vec![outcome(0)])]);
    rig.fail(0);
    assert_eq!(rig.order(1).args, [OrderArg::Outcome(failure(Some(CODE), "no disk", 1))]);
    rig.end(1, nothing());
    assert_eq!(*rig.phase(), Phase::Done);
}

#[test]
fn a_value_goes_to_who_takes_the_outcome_on_the_worker_that_made_it() {
    let mut rig = Rig::new(vec![task(vec![]), task(vec![outcome(0)])]);
    let OrderArg::Outcome(OneArg::Held(_)) = rig.order(1).args[0] else { panic!("{:?}", rig.orders) };
    rig.end(0, nothing());
    rig.end(1, nothing());
    assert_eq!(*rig.phase(), Phase::Done);
}

#[test]
fn a_list_of_outcomes_holds_values_failures_and_what_was_skipped() {
    let all = Arg::Outcomes((0..4).map(TaskRef::New).collect());
    let mut rig =
        Rig::new(vec![task(vec![]), task(vec![]), task(vec![output(1)]), task(vec![]), task(vec![all])]);
    rig.end(0, Outcome::Value(Value::Inline(vec![7].into())));
    rig.fail(1);
    rig.end(3, Outcome::Skipped);
    let want = vec![
        OneArg::Value(Value::Inline(vec![7].into())),
        failure(Some(CODE), "no disk", 1),
        failure(Some(CODE), "it needs task 1, which is failed: [E440] no disk", 1),
        failure(None, "it had nothing to give", 0),
    ];
    assert_eq!(rig.order(4).args, [OrderArg::Outcomes(want)]);
}

#[test]
fn a_failure_ends_the_job_unless_somebody_can_begin_with_its_outcome_table() {
    #[rustfmt::skip]
    let cases: [(&str, Vec<NewTask>, bool); 5] = [
        ("nobody takes it",               vec![task(vec![output(0)])],                             true),
        ("its outcome is taken",          vec![task(vec![outcome(0)])],                            false),
        ("that of who needs it is",       vec![task(vec![output(0)]), task(vec![outcome(1)])],     false),
        ("who takes it needs it as well", vec![task(vec![outcome(0), output(0)])],                 true),
        ("by way of another",             vec![task(vec![output(0)]), task(vec![outcome(0), output(1)])], true),
    ];
    for (case, behind, ends) in cases {
        let mut rig = Rig::new([vec![task(vec![])], behind].concat());
        rig.fail(0);
        assert_eq!(matches!(rig.phase(), Phase::Failed { .. }), ends, "{case}");
    }
}

#[test]
fn a_failure_counts_as_caught_or_not_whether_its_taker_loses_what_else_it_needs_before_or_after_it_table() {
    // Of each graph task 0 fails, and task 1 has nothing to give.
    #[rustfmt::skip]
    let cases: [(&str, Vec<NewTask>, bool); 5] = [
        ("who takes it is skipped",     vec![task(vec![outcome(0), output(1)])],                             true),
        ("that of who needs it",        vec![task(vec![output(0)]), task(vec![outcome(2), output(1)])],      true),
        ("another one takes it",        vec![task(vec![outcome(0), output(1)]), task(vec![outcome(0)])],     false),
        ("who is skipped has a taker",  vec![task(vec![outcome(0), output(1)]), task(vec![outcome(2)])],     true),
        ("that of who needs both",      vec![task(vec![output(0), output(1)]), task(vec![outcome(2)])],      false),
    ];
    for (case, behind, ends) in cases {
        for fails_first in [true, false] {
            let mut rig = Rig::new([vec![task(vec![]), task(vec![])], behind.clone()].concat());
            if fails_first {
                rig.fail(0);
                assert!(!rig.has_failed(), "{case}: somebody may take it still");
                rig.end(1, Outcome::Skipped);
            } else {
                rig.end(1, Outcome::Skipped);
                rig.fail(0);
            }
            assert_eq!(rig.has_failed(), ends, "{case}, it fails first: {fails_first}");
            if ends {
                let reason = "task 0: [E440] no disk".to_owned();
                assert_eq!(*rig.phase(), Phase::Failed { code: CODE, reason }, "{case}");
            }
        }
    }
}

#[test]
fn who_is_canceled_takes_no_failure_whether_before_it_or_after_it_or_while_it_runs() {
    let graph =
        |needs: Vec<Arg>| vec![task(vec![]), task(vec![]), task_of(1, [vec![outcome(0)], needs].concat())];
    let mut before = Rig::new(graph(vec![output(1)]));
    before.cancel(2);
    before.fail(0);
    let mut after = Rig::new(graph(vec![output(1)]));
    after.fail(0);
    after.cancel(2);
    let mut running = Rig::new(graph(vec![]));
    running.fail(0);
    running.cancel(2);
    for rig in [before, after, running] {
        let reason = "task 0: [E440] no disk".to_owned();
        assert_eq!(*rig.phase(), Phase::Failed { code: CODE, reason });
    }
}

#[test]
fn who_takes_a_failure_and_has_begun_may_fail_and_who_waits_too_long_has_not() {
    let graph = |class| vec![task(vec![]), task_of(class, vec![outcome(0)]), task(vec![])];
    let mut begun = Rig::new(graph(1));
    begun.fail(0);
    begun.fail(1);
    assert_eq!(*begun.phase(), Phase::Running);
    begun.end(2, nothing());
    assert_eq!(*begun.phase(), Phase::Done);
    let mut waits = Rig::new(graph(2));
    waits.fail(0);
    assert_eq!(*waits.phase(), Phase::Running);
    waits.core.handle(2_000_000, Input::Tick).unwrap();
    assert!(waits.has_failed(), "{:?}", waits.phase());
}

#[test]
fn the_failure_of_a_task_that_gives_for_another_goes_to_who_takes_the_outcome_of_that() {
    let mut rig = Rig::new(vec![task(vec![]), task(vec![outcome(0)])]);
    let spawned = Spawned { classes: vec![class()], tasks: vec![task(vec![])], gives: Gives::New(0) };
    rig.end(0, Outcome::Spawned(Box::new(spawned)));
    rig.fail(2);
    let why = "it gives what task 2 gives, which is failed: [E440] no disk";
    assert_eq!(rig.order(1).args, [OrderArg::Outcome(failure(Some(CODE), why, 1))]);
    rig.end(1, nothing());
    assert_eq!(*rig.phase(), Phase::Done);
}

#[test]
fn what_a_task_gives_by_another_is_shown_with_where_it_comes_from_where_nobody_takes_it() {
    for (more, is_shown) in [(vec![], true), (vec![task(vec![output(0)])], false)] {
        let child = 2 + more.len() as u32;
        let mut rig = Rig::new([vec![task(vec![]), task(vec![])], more].concat());
        let spawned = Spawned { classes: vec![class()], tasks: vec![task(vec![])], gives: Gives::New(0) };
        rig.end(0, Outcome::Spawned(Box::new(spawned)));
        assert_eq!(rig.order(child).is_shown, is_shown);
        let outcome = Outcome::Value(Value::Inline(vec![7].into()));
        let preview = is_shown.then(|| "7".to_owned().into());
        rig.handle(tasks_ended(WORKER, &id(), 1, vec![TaskEnd { preview, ..task_end(child, 1, outcome) }]));
        let view = rig.core.task_views(&id(), &TaskQuery::default(), 2).unwrap().swap_remove(0);
        assert_eq!(view.reason, format!("it is done, and gives what task {child} gave"));
        assert_eq!(view.value.as_ref().map(|shown| shown.as_str()), is_shown.then_some("7"));
    }
}

#[test]
fn a_worker_that_is_lost_for_good_is_an_outcome() {
    let mut rig = Rig::new(vec![task(vec![]), task(vec![outcome(0)])]);
    rig.handle(Input::WorkerGone { worker: WORKER, reason: "killed".into(), never_told: Vec::new() });
    let second = Incarnation(2);
    let functions = [class().work.function().unwrap().clone()].into();
    let capacity = Capacity { slots: 1, functions, ..Capacity::default() };
    let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
    rig.handle(Input::WorkerJoined { worker: second, about });
    let why = "its worker w1 was lost";
    assert_eq!(rig.order(1).args, [OrderArg::Outcome(failure(Some(FaultCode::new("E052")), why, 1))]);
}

/// What becomes of a task once it is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Gives,
    Skips,
    Fails,
}

/// A task of a random graph: which of those before it it takes, the outcome or the value, and when it ends
/// among those that can.
#[derive(Debug, Clone)]
struct Drawn {
    takes: Vec<(prop::sample::Index, bool)>,
    fate: Fate,
    turn: u32,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let takes = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..4);
    let fate = prop_oneof![2 => Just(Fate::Gives), 1 => Just(Fate::Skips), 2 => Just(Fate::Fails)];
    (takes, fate, any::<u32>()).prop_map(|(takes, fate, turn)| Drawn { takes, fate, turn })
}

/// Which tasks each takes, and whether the outcome.
fn inputs_of(drawn: &[Drawn]) -> Vec<BTreeSet<(u32, bool)>> {
    let of = |(task, drawn): (usize, &Drawn)| {
        let earlier = drawn.takes.iter().filter(|_| task > 0);
        earlier.map(|(index, outcome)| (index.index(task) as u32, *outcome)).collect()
    };
    drawn.iter().enumerate().map(of).collect()
}

/// Whether a failure is taken by nobody, by the graph alone.
fn fails(drawn: &[Drawn], inputs: &[BTreeSet<(u32, bool)>]) -> bool {
    let needs_one_of = |task: usize, of: &[bool]| inputs[task].iter().any(|(i, o)| !o && of[*i as usize]);
    let (mut skipped, mut gives_nothing) = (Vec::new(), Vec::new());
    for task in 0..drawn.len() {
        skipped.push(needs_one_of(task, &gives_nothing));
        gives_nothing.push(skipped[task] || drawn[task].fate != Fate::Gives);
    }
    (0..drawn.len()).filter(|task| !skipped[*task] && drawn[*task].fate == Fate::Fails).any(|failed| {
        let mut lost: Vec<bool> = Vec::new();
        for task in 0..drawn.len() {
            lost.push(task == failed || needs_one_of(task, &lost));
        }
        let takes =
            |task: usize| inputs[task].iter().any(|(input, outcome)| *outcome && lost[*input as usize]);
        !(0..drawn.len()).any(|task| !skipped[task] && takes(task))
    })
}

proptest! {
    #[test]
    fn whether_failures_end_the_job_follows_from_the_graph_in_whatever_order_its_tasks_end(
        drawn in prop::collection::vec(drawn(), 1..12),
    ) {
        let inputs = inputs_of(&drawn);
        let arg = |(task, takes_outcome): &(u32, bool)| if *takes_outcome { outcome(*task) } else { output(*task) };
        let mut rig = Rig::new(inputs.iter().map(|inputs| task(inputs.iter().map(arg).collect())).collect());
        while *rig.phase() == Phase::Running {
            let states = rig.states();
            let can_end = |task: &u32| {
                let have_ended = inputs[*task as usize].iter().all(|(input, _)| states[*input as usize].is_final());
                states[*task as usize] == TaskState::Leased && have_ended
            };
            let next = (0..drawn.len() as u32).filter(can_end).min_by_key(|task| drawn[*task as usize].turn);
            let next = next.expect("something goes on");
            match drawn[next as usize].fate {
                Fate::Gives => rig.end(next, nothing()),
                Fate::Skips => rig.end(next, Outcome::Skipped),
                Fate::Fails => rig.fail(next),
            }
        }
        prop_assert_eq!(rig.has_failed(), fails(&drawn, &inputs), "{:?}", inputs);
    }
}
