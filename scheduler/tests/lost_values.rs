//! Values that the parameter server has lost: who runs again, what waits for it, and what cannot be made again.

use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, BlobValue, Capacity, Failure, FailureCause, FunctionId, LostValues, NewTask, OneArg, Order,
        OrderArg, Outcome, Rules, Spawned, TaskClass, TaskIndex, TaskOrder, TaskQuery, TaskRef, TaskState,
        Value, Work,
    },
};

const MAKER: Incarnation = Incarnation(1);
const TAKER: Incarnation = Incarnation(2);

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// Calls of functions that one of the workers has, with so many attempts after a loss of a worker.
fn class(function: &str, crashes: u16) -> TaskClass {
    let function = FunctionId { name: function.parse().unwrap(), signature: 1 };
    let rules = Rules { crashes, errors: 0, ..Rules::default() };
    TaskClass { work: Work::Call(function), rules }
}

fn call(class: u16, args: Vec<Arg>) -> NewTask {
    NewTask { args, ..new_task(class) }
}

fn make(args: Vec<Arg>) -> NewTask {
    call(0, args)
}

fn take(args: Vec<Arg>) -> NewTask {
    call(1, args)
}

fn output(task: u32) -> Arg {
    Arg::Output(TaskRef::New(task))
}

fn blob(name: &str) -> BlobValue {
    BlobValue { digest: name.into(), bytes: 100_000 }
}

fn large(name: &str) -> Outcome {
    Outcome::Value(Value::Blob(blob(name)))
}

fn lost(digests: &[&str]) -> Outcome {
    let reason = "a blob is on none of the shards".to_owned();
    let failure = Failure { cause: FailureCause::Worker, code: FaultCode::new("E404"), reason };
    let digests = digests.iter().map(|digest| (*digest).to_owned()).collect();
    Outcome::ArgumentsLost(Box::new(LostValues { digests, failure }))
}

/// One worker that makes values, and one that takes them.
struct Rig {
    core: Core,
    orders: Vec<Order>,
    released: Vec<String>,
}

impl Rig {
    fn new(tasks: Vec<NewTask>) -> Self {
        Self::with_retries(tasks, 1)
    }

    fn with_retries(tasks: Vec<NewTask>, crashes: u16) -> Self {
        let mut rig = Self { core: Core::new(1), orders: Vec::new(), released: Vec::new() };
        let classes = vec![class("make", crashes), class("take", 0)];
        for (worker, class) in [MAKER, TAKER].into_iter().zip(&classes) {
            let functions = [class.work.function().unwrap().clone()].into();
            let capacity = Capacity { slots: 8, functions, ..Capacity::default() };
            let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
            rig.handle(Input::WorkerJoined { worker, about });
        }
        rig.handle(Input::SubmitGraph(graph_submission(&id(), 1, classes, tasks)));
        rig
    }

    fn handle(&mut self, input: Input) {
        for effect in self.core.handle(1, input).unwrap() {
            match effect {
                Effect::Orders { orders, .. } => self.orders.extend(orders),
                Effect::ReleaseBlobs { digests } => self.released.extend(digests),
                _ => {}
            }
        }
    }

    fn end(&mut self, worker: Incarnation, task: u32, outcome: Outcome) {
        let attempt = self.order(task).attempt;
        self.handle(tasks_ended(worker, &id(), 1, vec![task_end(task, attempt, outcome)]));
    }

    /// The newest order of a task.
    fn order(&self, task: u32) -> TaskOrder {
        let run = |order: &Order| if let Order::Run(group) = order { group.tasks.clone() } else { vec![] };
        self.orders.iter().flat_map(run).rfind(|order| order.task.0 == task).expect("it is given out")
    }

    fn states(&self) -> Vec<TaskState> {
        let query = TaskQuery { first: TaskIndex(0), limit: u32::MAX, state: None, name: None };
        self.core.task_views(&id(), &query, 1).unwrap().iter().map(|view| view.state).collect()
    }

    fn reason(&self, task: u32) -> String {
        let query = TaskQuery { first: TaskIndex(task), limit: 1, state: None, name: None };
        self.core.task_views(&id(), &query, 1).unwrap()[0].reason.clone()
    }

    fn phase(&self) -> &Phase {
        self.core.task_job(&id()).unwrap().phase()
    }
}

fn takes(digest: &str) -> OrderArg {
    OrderArg::One(OneArg::Value(Value::Blob(blob(digest))))
}

#[test]
fn what_made_a_lost_value_runs_again_and_what_takes_it_waits_for_that_without_using_up_an_attempt() {
    use TaskState::{Done, Leased, Waiting};
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)]), take(vec![output(0)])]);
    rig.end(MAKER, 0, large("a"));
    assert_eq!(rig.order(1).args, [takes("a")]);
    rig.end(TAKER, 1, lost(&["a"]));
    assert_eq!(
        rig.states(),
        [Leased, Waiting, Waiting],
        "the other one, which may have begun, is taken back"
    );
    assert_eq!(rig.order(0).attempt, 2);
    let recalled =
        |order: &Order| matches!(order, Order::Recall(attempts) if attempts.tasks == [(TaskIndex(2), 1)]);
    assert!(rig.orders.iter().any(recalled), "{:?}", rig.orders);
    rig.end(MAKER, 0, large("b"));
    for task in [1, 2] {
        assert_eq!(rig.order(task).args, [takes("b")]);
        rig.end(TAKER, task, Outcome::Value(Value::default()));
    }
    assert_eq!((rig.states(), rig.phase()), (vec![Done; 3], &Phase::Done));
    assert_eq!(rig.released, ["a", "b"], "what comes back of it on a disk is removed");
}

#[test]
fn what_was_removed_after_its_last_use_is_made_again_before() {
    use TaskState::{Leased, Waiting};
    let mut rig = Rig::new(vec![make(vec![]), make(vec![output(0)]), take(vec![output(1)])]);
    rig.end(MAKER, 0, large("a"));
    rig.end(MAKER, 1, large("b"));
    assert_eq!(rig.released, ["a"]);
    rig.end(TAKER, 2, lost(&["b"]));
    assert_eq!(rig.states(), [Leased, Leased, Waiting], "a chain on one worker");
    for (task, worker, outcome) in
        [(0, MAKER, large("c")), (1, MAKER, large("d")), (2, TAKER, Outcome::Value(Value::default()))]
    {
        rig.end(worker, task, outcome);
    }
    assert_eq!(*rig.phase(), Phase::Done);
    assert_eq!(rig.released, ["a", "b", "c", "d"]);
}

#[test]
fn a_value_that_an_added_task_gives_is_made_again_by_that_task() {
    use TaskState::{Continued, Leased, Waiting};
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)])]);
    let added = Spawned { classes: vec![class("make", 1)], tasks: vec![make(vec![])], value: Err(0) };
    rig.end(MAKER, 0, Outcome::Spawned(Box::new(added)));
    rig.end(MAKER, 2, large("a"));
    rig.end(TAKER, 1, lost(&["a"]));
    assert_eq!(rig.states(), [Continued, Waiting, Leased]);
    rig.end(MAKER, 2, large("b"));
    assert_eq!(rig.order(1).args, [takes("b")]);
    rig.end(TAKER, 1, Outcome::Value(Value::default()));
    assert_eq!(*rig.phase(), Phase::Done);
}

#[test]
fn what_a_task_has_added_is_not_added_again() {
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)])]);
    let spawned = |name: &str| {
        let named = NewTask { name: Some("child".parse().unwrap()), ..make(vec![]) };
        let value = Ok(Value::Blob(blob(name)));
        Outcome::Spawned(Box::new(Spawned { classes: vec![class("make", 1)], tasks: vec![named], value }))
    };
    rig.end(MAKER, 0, spawned("a"));
    rig.end(TAKER, 1, lost(&["a"]));
    rig.end(MAKER, 0, spawned("b"));
    rig.end(TAKER, 1, Outcome::Value(Value::default()));
    rig.end(MAKER, 2, Outcome::Value(Value::default()));
    assert_eq!((rig.states(), rig.phase()), (vec![TaskState::Done; 3], &Phase::Done));
}

#[test]
fn what_cannot_be_made_again_fails_who_needs_it_and_says_why() {
    let with_blob = || Rig::new(vec![make(vec![Arg::Blob(blob("argument"))]), take(vec![output(0)])]);
    let once = || Rig::with_retries(vec![make(vec![]), take(vec![output(0)])], 0);
    let cases: [(fn() -> Rig, &str, &str); 3] = [
        (with_blob, "a", "the large arguments of task 0 were removed when it had ended"),
        (once, "a", "task 0 has no `crash_retries`, and so is not begun again"),
        (once, "another", ""),
    ];
    for (rig, digest, why) in cases {
        let mut rig = rig();
        rig.end(MAKER, 0, large("a"));
        rig.end(TAKER, 1, lost(&[digest]));
        let why = if why.is_empty() { "" } else { &format!(", and cannot be made again: {why}") };
        assert_eq!(rig.reason(1), format!("it failed: [E404] a blob is on none of the shards{why}"));
    }
}

#[test]
fn a_value_that_is_lost_again_and_again_is_given_up() {
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)])]);
    for n in 0..6 {
        let digest = n.to_string();
        rig.end(MAKER, 0, large(&digest));
        rig.end(TAKER, 1, lost(&[&digest]));
    }
    let why = "the value of task 0 was lost 5 times before";
    assert_eq!(
        rig.reason(1),
        format!("it failed: [E404] a blob is on none of the shards, and cannot be made again: {why}")
    );
}
