//! Tasks that take the outcomes of others: when they begin, what they are told, and when a failure still ends the job.

use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, Capacity, Failure, FailureCause, FunctionId, NewTask, OneArg, Order, OrderArg, Outcome, Rules,
        Spawned, TaskClass, TaskFailure, TaskOrder, TaskRef, Value, Work,
    },
};

const WORKER: Incarnation = Incarnation(1);
const CODE: FaultCode = FaultCode::new("E440");

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// Calls whose failure fails the job, and which nothing tries again.
fn class() -> TaskClass {
    let function = FunctionId { name: "f".parse().unwrap(), signature: 1 };
    let rules = Rules { crashes: 0, errors: 0, ..Rules::default() };
    TaskClass { work: Work::Call(function), rules }
}

fn task(args: Vec<Arg>) -> NewTask {
    NewTask { args, ..new_task(0) }
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
        let capacity = Capacity { slots: 8, functions, ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        rig.handle(Input::WorkerJoined { worker: WORKER, about });
        rig.handle(Input::SubmitGraph(graph_submission(&id(), 1, vec![class()], tasks)));
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
fn the_failure_of_a_task_that_gives_for_another_goes_to_who_takes_the_outcome_of_that() {
    let mut rig = Rig::new(vec![task(vec![]), task(vec![outcome(0)])]);
    let spawned = Spawned { classes: vec![class()], tasks: vec![task(vec![])], value: Err(0) };
    rig.end(0, Outcome::Spawned(Box::new(spawned)));
    rig.fail(2);
    let why = "it gives what task 2 gives, which is failed: [E440] no disk";
    assert_eq!(rig.order(1).args, [OrderArg::Outcome(failure(Some(CODE), why, 1))]);
    rig.end(1, nothing());
    assert_eq!(*rig.phase(), Phase::Done);
}

#[test]
fn a_worker_that_is_lost_for_good_is_an_outcome() {
    let mut rig = Rig::new(vec![task(vec![]), task(vec![outcome(0)])]);
    rig.handle(Input::WorkerGone { worker: WORKER, reason: "killed".into() });
    let second = Incarnation(2);
    let functions = [class().work.function().unwrap().clone()].into();
    let capacity = Capacity { slots: 1, functions, ..Capacity::default() };
    let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
    rig.handle(Input::WorkerJoined { worker: second, about });
    let why = "its worker w1 was lost";
    assert_eq!(rig.order(1).args, [OrderArg::Outcome(failure(Some(FaultCode::new("E052")), why, 1))]);
}
