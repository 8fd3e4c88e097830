//! Values that the parameter server has lost: who runs again, what waits for it, and what cannot be made
//! again.

use syncline_scheduler::{
    core::{Core, Effect, Input, Phase, WorkerInfo},
    fault_code::FaultCode,
    ids::{ContentDigest, Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Arg, BlobValue, Capacity, Failure, FailureCause, FunctionId, Gives, LostValues, NewTask, OnFailure,
        OneArg, Order, OrderArg, Outcome, Rules, Spawned, TaskClass, TaskEnd, TaskIndex, TaskOrder,
        TaskQuery, TaskRef, TaskState, Value, Work,
    },
};

const MAKER: Incarnation = Incarnation(1);
const TAKER: Incarnation = Incarnation(2);

fn id() -> JobId {
    "graph".parse().unwrap()
}

/// Calls of functions that one of the workers has, with so many attempts after a loss of a worker.
fn class(function: &str, crashes: u16) -> TaskClass {
    let function = FunctionId { name: function.parse().unwrap(), signature: 1, types: String::new() };
    let rules = Rules { crashes, errors: 0, on_failure: OnFailure::SkipDependents, ..Rules::default() };
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

fn digest(name: &str) -> ContentDigest {
    let mut bytes = [0; ContentDigest::BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    ContentDigest::from_bytes(bytes)
}

fn blob(name: &str) -> BlobValue {
    BlobValue { digest: digest(name), bytes: 100_000 }
}

fn large(name: &str) -> Outcome {
    Outcome::Value(Value::Blob(blob(name)))
}

fn lost(digests: &[&str]) -> Outcome {
    let reason = "a blob is on none of the shards".to_owned();
    let failure = Failure { cause: FailureCause::Worker, code: FaultCode::new("E404"), reason };
    let digests = digests.iter().copied().map(digest).collect();
    Outcome::ArgumentsLost(Box::new(LostValues { digests, failure }))
}

fn failed(cause: FailureCause) -> Outcome {
    Outcome::Failed(Failure { cause, code: FaultCode::new("E999"), reason: "no".to_owned() })
}

/// One worker that makes values, and one that takes them.
struct Rig {
    core: Core,
    orders: Vec<Order>,
    released: Vec<ContentDigest>,
    now_us: u64,
}

impl Rig {
    fn new(tasks: Vec<NewTask>) -> Self {
        Self::with_crash_retries(tasks, [1, 0])
    }

    /// With so many for those that make values, and for those that take them.
    fn with_crash_retries(tasks: Vec<NewTask>, crashes: [u16; 2]) -> Self {
        Self::with_classes(tasks, vec![class("make", crashes[0]), class("take", crashes[1])])
    }

    /// The first is of those that make values, the second of those that take them.
    fn with_classes(tasks: Vec<NewTask>, classes: Vec<TaskClass>) -> Self {
        let mut rig = Self { core: Core::new(1), orders: Vec::new(), released: Vec::new(), now_us: 1 };
        for (worker, class) in [MAKER, TAKER].into_iter().zip(&classes) {
            rig.join(worker, class);
        }
        rig.handle(Input::SubmitGraph(graph_submission(&id(), 1, classes, tasks)));
        rig
    }

    fn handle(&mut self, input: Input) {
        for effect in self.core.handle(self.now_us, input).unwrap() {
            match effect {
                Effect::Orders { orders, .. } => self.orders.extend(orders),
                Effect::ReleaseBlobs { digests } => self.released.extend(digests),
                _ => {}
            }
        }
    }

    fn join(&mut self, worker: Incarnation, class: &TaskClass) {
        let functions = [class.work.function().unwrap().clone()].into();
        let capacity = Capacity { slots: 8, functions, ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        self.handle(Input::WorkerJoined { worker, about });
    }

    /// Time passes.
    fn pass_s(&mut self, seconds: u64) {
        self.now_us += seconds * 1_000_000;
        self.handle(Input::Tick);
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
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)])]);
    rig.end(MAKER, 0, large("a"));
    assert_eq!(rig.order(1).args, [takes("a")]);
    rig.end(TAKER, 1, lost(&["a"]));
    assert_eq!((rig.states(), rig.order(0).attempt), (vec![Leased, Waiting], 2));
    rig.end(MAKER, 0, large("b"));
    assert_eq!(rig.order(1).args, [takes("b")]);
    rig.end(TAKER, 1, Outcome::Value(Value::default()));
    assert_eq!((rig.states(), rig.phase()), (vec![Done; 2], &Phase::Done));
    assert_eq!(rig.released, ["a", "b"].map(digest), "what comes back of it on a disk is removed");
}

#[test]
fn who_may_have_begun_with_the_value_is_left_alone_until_it_says_that_it_has_not() {
    use TaskState::{Done, Leased, Waiting};
    let takers = (0..3).map(|_| take(vec![output(0)]));
    let mut rig = Rig::new([make(vec![])].into_iter().chain(takers).collect());
    rig.end(MAKER, 0, large("a"));
    rig.end(TAKER, 1, lost(&["a"]));
    assert_eq!(rig.states(), [Leased, Waiting, Leased, Leased]);
    assert!(!rig.orders.iter().any(|order| matches!(order, Order::Recall(_))), "{:?}", rig.orders);
    rig.end(TAKER, 2, Outcome::Value(Value::default()));
    rig.end(MAKER, 0, large("b"));
    // It had been told of the one before, and nothing is made again for it.
    rig.end(TAKER, 3, lost(&["a"]));
    assert_eq!(rig.states(), [Done, Leased, Done, Leased]);
    for task in [1, 3] {
        assert_eq!((rig.order(task).args, rig.order(task).attempt), (vec![takes("b")], 2));
        rig.end(TAKER, task, Outcome::Value(Value::default()));
    }
    assert_eq!(*rig.phase(), Phase::Done);
}

#[test]
fn what_only_comes_after_it_begins_meanwhile() {
    let after = NewTask { after: vec![TaskRef::New(0), TaskRef::New(2)], ..make(vec![]) };
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)]), make(vec![]), after]);
    rig.end(MAKER, 0, large("a"));
    rig.end(TAKER, 1, lost(&["a"]));
    rig.end(MAKER, 2, Outcome::Value(Value::default()));
    let order = rig.order(3);
    assert_eq!(
        (order.attempt, order.after),
        (1, vec![]),
        "it is given out, and waits for nothing where it is"
    );
    rig.end(MAKER, 0, large("b"));
    assert_eq!(rig.states()[3], TaskState::Leased);
}

#[test]
fn where_it_fails_then_what_waits_for_it_is_skipped_also_out_of_a_pause_and_the_job_ends() {
    use TaskState::{Failed, Leased, Skipped, Waiting};
    let takers = (0..3).map(|_| take(vec![output(0)]));
    let graph = [make(vec![])].into_iter().chain(takers).collect();
    let mut rig = Rig::with_crash_retries(graph, [1, 3]);
    rig.end(MAKER, 0, large("a"));
    rig.handle(Input::WorkerGone { worker: TAKER, reason: "dead".into(), never_told: Vec::new() });
    rig.join(Incarnation(3), &class("take", 3));
    assert_eq!(rig.states()[1..], [TaskState::Backoff; 3]);
    rig.pass_s(1_000);
    rig.end(Incarnation(3), 1, lost(&["a"]));
    assert_eq!(rig.states(), [Leased, Waiting, Leased, Leased]);
    // One of those that may have begun is in its pause when the value fails for good, the other one goes on.
    rig.end(Incarnation(3), 2, failed(FailureCause::Worker));
    rig.end(MAKER, 0, failed(FailureCause::Function));
    assert_eq!(rig.states(), [Failed, Skipped, Skipped, Leased]);
    rig.pass_s(1_000);
    rig.end(Incarnation(3), 3, lost(&["a"]));
    assert_eq!((rig.states(), rig.phase()), (vec![Failed, Skipped, Skipped, Skipped], &Phase::Done));
}

#[test]
fn what_runs_again_has_all_its_retries_however_many_its_first_run_needed() {
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)])]);
    for value in ["a", "b"] {
        rig.end(MAKER, 0, failed(FailureCause::Worker));
        assert_eq!(rig.states()[0], TaskState::Backoff, "before {value}");
        rig.pass_s(1_000);
        rig.end(MAKER, 0, large(value));
        let end = if value == "a" { lost(&["a"]) } else { Outcome::Value(Value::default()) };
        rig.end(TAKER, 1, end);
    }
    assert_eq!((rig.states(), rig.phase()), (vec![TaskState::Done; 2], &Phase::Done));
}

#[test]
fn who_finds_its_argument_lost_has_not_run_and_counts_for_no_mean_time() {
    let takers = (0..100).map(|_| take(vec![output(0)]));
    let mut rig = Rig::new([make(vec![])].into_iter().chain(takers).collect());
    let leased = |rig: &Rig| rig.states().iter().filter(|state| **state == TaskState::Leased).count();
    rig.end(MAKER, 0, large("a"));
    let slots = leased(&rig);
    let end = TaskEnd { run_us: 0, ..task_end(1, 1, lost(&["a"])) };
    rig.handle(tasks_ended(TAKER, &id(), 1, vec![end]));
    rig.end(MAKER, 0, large("b"));
    assert_eq!(
        leased(&rig),
        slots,
        "short ones are given out ahead, and of these nobody knows how short they are"
    );
}

#[test]
fn what_was_removed_after_its_last_use_is_made_again_before() {
    use TaskState::{Leased, Waiting};
    let mut rig = Rig::new(vec![make(vec![]), make(vec![output(0)]), take(vec![output(1)])]);
    rig.end(MAKER, 0, large("a"));
    rig.end(MAKER, 1, large("b"));
    assert_eq!(rig.released, [digest("a")]);
    rig.end(TAKER, 2, lost(&["b"]));
    assert_eq!(rig.states(), [Leased, Waiting, Waiting]);
    for (task, worker, outcome) in
        [(0, MAKER, large("c")), (1, MAKER, large("d")), (2, TAKER, Outcome::Value(Value::default()))]
    {
        rig.end(worker, task, outcome);
    }
    assert_eq!(*rig.phase(), Phase::Done);
    assert_eq!(rig.released, ["a", "b", "c", "d"].map(digest));
}

#[test]
fn a_value_that_an_added_task_gives_is_made_again_by_that_task() {
    use TaskState::{Continued, Leased, Waiting};
    let mut rig = Rig::new(vec![make(vec![]), take(vec![output(0)])]);
    let added = Spawned { classes: vec![class("make", 1)], tasks: vec![make(vec![])], gives: Gives::New(0) };
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
        let gives = Gives::Value(Value::Blob(blob(name)));
        Outcome::Spawned(Box::new(Spawned { classes: vec![class("make", 1)], tasks: vec![named], gives }))
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
    let with_blob = Rig::new(vec![make(vec![Arg::Blob(blob("argument"))]), take(vec![output(0)])]);
    let once = || Rig::with_crash_retries(vec![make(vec![]), take(vec![output(0)])], [0, 0]);
    let cases = [
        (with_blob, "a", "task 0 had large arguments, which were removed when it had ended"),
        (once(), "a", "task 0 has no `crash_retries`, and so is not begun again"),
        (once(), "another", ""),
    ];
    for (mut rig, digest, why) in cases {
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

#[test]
fn a_failure_of_what_was_made_again_that_somebody_has_dealt_with_fails_no_job_when_another_taker_is_skipped()
{
    use TaskState::{Done, Failed, Skipped};
    let outcome = |task| Arg::Outcome(TaskRef::New(task));
    // 0 gives a value that 3 finds lost. 4 and 5 take its outcome, and wait for 1 and 2.
    let with_failure = || {
        let takers = [vec![output(0)], vec![outcome(0), output(1)], vec![outcome(0), output(2)]];
        let mut tasks = vec![call(2, vec![]), make(vec![]), make(vec![])];
        tasks.extend(takers.map(take));
        let mut strict = class("make", 1);
        strict.rules.on_failure = OnFailure::FailJob;
        let mut rig = Rig::with_classes(tasks, vec![class("make", 1), class("take", 0), strict]);
        rig.end(MAKER, 0, large("a"));
        rig.end(TAKER, 3, lost(&["a"]));
        rig.end(MAKER, 0, failed(FailureCause::Function));
        rig
    };
    // The failure is dealt with, or somebody is at it, when task 2 ends without a value.
    for has_ended in [true, false] {
        let mut rig = with_failure();
        rig.end(MAKER, 1, Outcome::Value(Value::default()));
        if has_ended {
            rig.end(TAKER, 4, Outcome::Value(Value::default()));
        }
        rig.end(MAKER, 2, failed(FailureCause::Function));
        if !has_ended {
            rig.end(TAKER, 4, Outcome::Value(Value::default()));
        }
        assert_eq!(rig.states(), [Failed, Done, Failed, Skipped, Done, Skipped]);
        assert_eq!(*rig.phase(), Phase::Done);
    }

    let mut rig = with_failure();
    for task in [1, 2] {
        assert_eq!(*rig.phase(), Phase::Running);
        rig.end(MAKER, task, failed(FailureCause::Function));
    }
    assert!(matches!(rig.phase(), Phase::Failed { .. }), "nobody deals with it: {:?}", rig.phase());
}
