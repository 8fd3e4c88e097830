//! General tasks on real threads, with orders as an engine gives them and a store in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use syncline_ps::PsError;
use syncline_rpc::{EngineAddresses, ShardFault, Token};
use syncline_scheduler::{
    fault_code::FaultCode,
    tasks::{
        Attempts, BlobValue, Bytes, FailureCause, FunctionId, MAX_INLINE_BYTES, OneArg, Order, OrderArg,
        OrderGroup, Outcome, ReportGroup, Spawned, TaskEnd, TaskIndex, TaskOrder, Value,
    },
};
use tokio::runtime::Runtime;

use super::{
    CallEnvironment, GivenUp, Pool,
    held::{EndedKey, OrderId},
    reports::Reports,
    retelling::Retelling,
    running::MORE_CHANCES,
    threads,
};
use crate::{
    client::Client,
    functions::{ArgumentError, Context, Function, JobKey, Next, Registry, Salt, ValueStore, task_salt},
};

const ADD: Function<(u64, u64), u64> = Function::new("add");
const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");
const FAIL: Function<(), u64> = Function::new("fail");
const SKIP: Function<(), u64> = Function::new("skip");
const LARGE: Function<(u8,), Vec<u8>> = Function::new("large");
const SIZE: Function<(Vec<u8>, u64), u64> = Function::new("size");
const CHILD: Function<(u64,), u64> = Function::new("child");
const UNKNOWN: Function<(), ()> = Function::new("unknown");
const NONCE: u32 = 9;

mod shard_away;
mod stopping;

/// Blobs by digest, and what prevents the next uses, the last one first.
#[derive(Default, Clone)]
struct Memory(Arc<Mutex<BTreeMap<String, (Salt, Bytes)>>>, Arc<Mutex<Vec<PsError>>>);

impl Memory {
    fn fail_if_due(&self) -> Result<(), PsError> {
        self.1.lock().unwrap().pop().map_or(Ok(()), Err)
    }
}

impl ValueStore for Memory {
    fn put(&self, salt: Salt, value: &[u8]) -> Result<BlobValue, PsError> {
        self.fail_if_due()?;
        let digest = blake3::hash(&[&salt[..], value].concat()).to_hex().to_string();
        self.0.lock().unwrap().insert(digest.clone(), (salt, value.into()));
        Ok(BlobValue { digest, bytes: value.len() as u64 })
    }

    fn get(&self, blob: &BlobValue) -> Result<Bytes, PsError> {
        self.fail_if_due()?;
        let digest = blob.digest.clone();
        let found = self.0.lock().unwrap().get(&digest).map(|(_, value)| value.clone());
        found.ok_or(PsError::Refused { fault: ShardFault::MissingBlob { digest } })
    }
}

/// A pool, and what an engine would see of it.
struct Rig {
    pool: Pool,
    store: Memory,
    runtime: Runtime,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.pool.abandon();
    }
}

fn usual() -> Registry {
    let mut registry = Registry::new();
    registry.register(ADD, |a: u64, b: u64| a + b).unwrap();
    registry.register(SUM, |all: Vec<u64>| all.iter().sum::<u64>()).unwrap();
    registry.register(FAIL, || Err::<u64, _>("as it should")).unwrap();
    registry.register(SKIP, || Next::<u64>::Skip).unwrap();
    registry.register(LARGE, |fill: u8| vec![fill; MAX_INLINE_BYTES + 1]).unwrap();
    registry.register(SIZE, |bytes: Vec<u8>, more: u64| bytes.len() as u64 + more).unwrap();
    let child = |context: &Context, n: u64| -> Result<Next<u64>, ArgumentError> {
        let large = context.call(SIZE, (vec![1u8; MAX_INLINE_BYTES + 1], 0))?;
        Ok(if n == 0 { Next::Of(large) } else { Next::Value(n) })
    };
    registry.register(CHILD, child).unwrap();
    registry
}

/// A client of a cluster of which no engine is there.
fn nowhere() -> Client {
    Client::new("127.0.0.1:1".parse::<EngineAddresses>().unwrap(), Token::generate())
}

fn rig(registry: Registry, slots: u32) -> Rig {
    let rig = rig_without_limits(registry, slots);
    let limits = rig.pool.clone();
    rig.runtime.spawn(async move { limits.enforce_limits().await });
    rig
}

/// Where nobody looks at deadlines but the test.
fn rig_without_limits(registry: Registry, slots: u32) -> Rig {
    rig_beside(registry, slots, GivenUp::default())
}

/// The same of a worker that had other pools before.
fn rig_beside(registry: Registry, slots: u32, given_up: GivenUp) -> Rig {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = Memory::default();
    let around = CallEnvironment::new(store.clone(), nowhere(), runtime.handle().clone());
    let pool = Pool::start(registry, slots, around, given_up).unwrap();
    Rig { pool, store, runtime }
}

impl Rig {
    fn order(&self, function: FunctionId, tasks: Vec<TaskOrder>) {
        self.pool.take(vec![group(function, tasks)], None);
    }

    /// The next ends, so many; acknowledged.
    fn ends(&self, count: usize) -> Vec<TaskEnd> {
        let mut ends = Vec::new();
        while ends.len() < count {
            let batch = self.runtime.block_on(self.pool.next_reports());
            ends.extend(batch.groups.iter().flat_map(|group| group.ended.clone()));
            self.pool.acknowledge(batch);
        }
        assert_eq!(ends.len(), count, "{ends:?}");
        ends
    }

    /// What the next end of a task gives, as a number.
    fn number(&self, task: u32) -> u64 {
        let [end] = &self.ends(1)[..] else { unreachable!() };
        assert_eq!(end.task, TaskIndex(task), "{end:?}");
        number(end)
    }
}

fn number(end: &TaskEnd) -> u64 {
    let Outcome::Value(Value::Inline(bytes)) = &end.outcome else { panic!("{end:?}") };
    postcard::from_bytes(bytes).unwrap()
}

fn failure(end: &TaskEnd) -> (FailureCause, FaultCode) {
    let Outcome::Failed(failure) = &end.outcome else { panic!("{end:?}") };
    (failure.cause, failure.code)
}

fn group(function: FunctionId, tasks: Vec<TaskOrder>) -> Order {
    let job = "job".parse().unwrap();
    Order::Run(OrderGroup { job, nonce: NONCE, function, slots: 1, run_limit_ms: None, tasks })
}

fn task(task: u32, args: Vec<OrderArg>) -> TaskOrder {
    TaskOrder { task: TaskIndex(task), attempt: 1, args, after: Vec::new(), is_shown: false }
}

fn again(order: TaskOrder, attempt: u16) -> TaskOrder {
    TaskOrder { attempt, ..order }
}

fn after(order: TaskOrder, after: &[u32]) -> TaskOrder {
    TaskOrder { after: after.iter().copied().map(TaskIndex).collect(), ..order }
}

fn number_arg(n: u64) -> OneArg {
    OneArg::Value(Value::Inline(postcard::to_stdvec(&n).unwrap().into()))
}

fn is(n: u64) -> OrderArg {
    OrderArg::One(number_arg(n))
}

fn held_arg(task: u32) -> OneArg {
    OneArg::Held(TaskIndex(task))
}

fn held(task: u32) -> OrderArg {
    OrderArg::One(held_arg(task))
}

fn recall(tasks: &[(u32, u16)]) -> Order {
    let tasks = tasks.iter().map(|&(task, attempt)| (TaskIndex(task), attempt)).collect();
    Order::Recall(Attempts { job: "job".parse().unwrap(), nonce: NONCE, tasks })
}

/// A function that waits until it is let go, and one that says so when it is to stop.
struct Gate {
    registry: Registry,
    begun: mpsc::Receiver<u64>,
    go: mpsc::Sender<()>,
}

const WAIT: Function<(u64,), u64> = Function::new("wait");

fn gate() -> Gate {
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let mut registry = usual();
    let wait = move |n: u64| {
        begin.send(n).unwrap();
        let _ = gone.lock().unwrap().recv();
        n
    };
    registry.register(WAIT, wait).unwrap();
    Gate { registry, begun, go }
}

#[test]
fn a_task_waits_for_those_that_are_held_and_takes_what_they_gave() {
    let rig = rig(usual(), 2);
    // Children first: they wait all the same, if the parents are there.
    rig.order(ADD.id(), vec![task(0, vec![is(1), is(2)]), task(1, vec![held(0), is(10)])]);
    rig.order(SUM.id(), vec![task(2, vec![OrderArg::List(vec![held_arg(0), number_arg(100), held_arg(1)])])]);
    rig.order(ADD.id(), vec![after(task(3, vec![is(4), is(5)]), &[2])]);
    let ends = rig.ends(4);
    let given: Vec<(u32, u64)> = ends.iter().map(|end| (end.task.0, number(end))).collect();
    assert_eq!(given, [(0, 3), (1, 13), (2, 116), (3, 9)]);
    // What they gave is kept until no order can refer to it: a poll that began after the end was taken is the last.
    let poll = rig.pool.poll_begins();
    rig.order(ADD.id(), vec![task(4, vec![held(2), held(2)])]);
    rig.pool.poll_answered(poll);
    assert_eq!(rig.number(4), 232);
    rig.order(ADD.id(), vec![task(5, vec![held(2), is(0)])]);
    assert_eq!(failure(&rig.ends(1)[0]), (FailureCause::Worker, FaultCode::new("E446")));
}

#[test]
fn a_list_of_many_is_put_together_as_postcard_writes_it() {
    let rig = rig(usual(), 1);
    rig.order(SUM.id(), vec![task(0, vec![OrderArg::List((0..300).map(number_arg).collect())])]);
    assert_eq!(rig.number(0), 299 * 300 / 2);
}

#[test]
fn what_waits_for_a_task_that_gives_nothing_is_dropped_without_a_word_and_can_come_again() {
    let rig = rig(usual(), 1);
    for (place, function) in [(0, FAIL.id()), (10, SKIP.id())] {
        let tasks =
            vec![task(place + 1, vec![held(place), is(1)]), task(place + 2, vec![held(place + 1), is(1)])];
        rig.pool.take(vec![group(function, vec![task(place, vec![])]), group(ADD.id(), tasks)], None);
        assert_eq!(rig.ends(1)[0].task, TaskIndex(place));
        // The engine may not have known.
        rig.order(ADD.id(), vec![task(place + 3, vec![held(place + 2), is(1)])]);
        rig.order(ADD.id(), vec![after(task(place + 4, vec![is(1), is(1)]), &[place])]);
        rig.order(ADD.id(), vec![task(place + 2, vec![is(7), is(1)])]);
        assert_eq!(rig.number(place + 2), 8);
    }
    // One that is continued by a task that it adds gives nothing here, either.
    let tasks = vec![task(21, vec![held(20), is(1)])];
    rig.pool.take(vec![group(CHILD.id(), vec![task(20, vec![is(0)])]), group(ADD.id(), tasks)], None);
    let [end] = &rig.ends(1)[..] else { unreachable!() };
    let Outcome::Spawned(spawned) = &end.outcome else { panic!("{end:?}") };
    let Spawned { classes, tasks, value } = &**spawned;
    assert_eq!((classes.len(), tasks.len(), value), (1, 1, &Err(0)));
    let syncline_scheduler::tasks::Arg::Blob(large) = &tasks[0].args[0] else { panic!("{tasks:?}") };
    assert!(rig.store.get(large).unwrap().len() > MAX_INLINE_BYTES);
    rig.order(ADD.id(), vec![task(22, vec![is(1), is(1)])]);
    assert_eq!(rig.number(22), 2);
}

#[test]
fn one_that_adds_tasks_and_gives_a_value_lets_others_go_on() {
    let rig = rig(usual(), 1);
    let tasks = vec![task(1, vec![held(0), is(1)])];
    rig.pool.take(vec![group(CHILD.id(), vec![task(0, vec![is(5)])]), group(ADD.id(), tasks)], None);
    let ends = rig.ends(2);
    let Outcome::Spawned(spawned) = &ends[0].outcome else { panic!("{ends:?}") };
    assert_eq!(spawned.value, Ok(Value::Inline(vec![5].into())));
    assert_eq!(number(&ends[1]), 6);
}

#[test]
fn large_values_lie_in_the_store_and_are_at_hand_for_those_that_wait_here() {
    let rig = rig(usual(), 1);
    rig.pool.take(
        vec![
            group(
                LARGE.id(),
                vec![task(0, vec![OrderArg::One(OneArg::Value(Value::Inline(vec![7].into())))])],
            ),
            group(SIZE.id(), vec![task(1, vec![held(0), is(1)])]),
        ],
        None,
    );
    let ends = rig.ends(2);
    let Outcome::Value(Value::Blob(blob)) = &ends[0].outcome else { panic!("{ends:?}") };
    assert_eq!(number(&ends[1]), MAX_INLINE_BYTES as u64 + 2);
    assert_eq!(rig.store.0.lock().unwrap()[&blob.digest].0, task_salt(NONCE, TaskIndex(0), 1));
    // Another worker fetches it.
    rig.order(SIZE.id(), vec![task(2, vec![OrderArg::One(OneArg::Value(Value::Blob(blob.clone()))), is(2)])]);
    assert_eq!(rig.number(2), MAX_INLINE_BYTES as u64 + 3);
    let gone = OrderArg::One(OneArg::Value(Value::Blob(BlobValue { digest: "no".into(), bytes: 1 })));
    rig.order(SIZE.id(), vec![task(3, vec![gone, is(2)])]);
    assert_eq!(failure(&rig.ends(1)[0]).0, FailureCause::Worker);
}

#[test]
fn a_function_that_this_worker_has_not_is_the_workers_fault() {
    let rig = rig(usual(), 1);
    rig.order(UNKNOWN.id(), vec![task(0, vec![])]);
    assert_eq!(failure(&rig.ends(1)[0]), (FailureCause::Worker, FaultCode::new("E446")));
}

#[test]
fn an_order_that_comes_twice_is_done_once_and_another_attempt_is_done_anew() {
    let rig = rig(usual(), 1);
    let order = task(0, vec![is(1), is(2)]);
    rig.order(ADD.id(), vec![order.clone(), order.clone()]);
    assert_eq!(rig.number(0), 3);
    rig.order(ADD.id(), vec![order.clone()]);
    rig.order(ADD.id(), vec![again(order, 2)]);
    let ends = rig.ends(1);
    assert_eq!((ends[0].attempt, number(&ends[0])), (2, 3));
}

#[test]
fn what_is_recalled_is_not_begun_or_not_reported() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    let tasks = (0..3).map(|n| task(n, vec![is(u64::from(n))])).collect();
    rig.order(WAIT.id(), tasks);
    assert_eq!(begun.recv().unwrap(), 0);
    // Another attempt than the one that is held is none of its business.
    rig.pool.take(vec![recall(&[(0, 1), (1, 1), (2, 2)])], None);
    go.send(()).unwrap();
    assert_eq!(begun.recv().unwrap(), 2);
    go.send(()).unwrap();
    assert_eq!(rig.number(2), 2);
}

#[test]
fn another_engine_says_what_is_still_to_be_done_and_what_has_ended_is_still_reported() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 2);
    rig.order(ADD.id(), vec![task(0, vec![is(1), is(1)])]);
    let taken = rig.runtime.block_on(rig.pool.next_reports());
    rig.order(WAIT.id(), (1..=4).map(|n| task(n, vec![is(u64::from(n))])).collect());
    let mut running = [begun.recv().unwrap(), begun.recv().unwrap()];
    running.sort_unstable();
    assert_eq!(running, [1, 2]);
    // It has restored the first two and the last; the first was reported to the other engine.
    let restored = vec![group(WAIT.id(), [0, 1, 4].map(|n| task(n, vec![is(u64::from(n))])).into())];
    let mut named = Retelling::of(1);
    named.note(&restored);
    rig.pool.take(restored, Some(named));
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    assert_eq!(begun.recv().unwrap(), 4);
    let mut ends: Vec<u32> = rig.ends(2).iter().map(|end| end.task.0).collect();
    ends.sort_unstable();
    assert_eq!((taken.groups[0].ended[0].task, ends), (TaskIndex(0), vec![1, 4]));
    assert!(!rig.pool.is_done(), "the first end was never acknowledged");
    rig.pool.acknowledge(taken);
    assert!(rig.pool.is_done());
}

#[test]
fn what_an_engine_took_and_its_store_forgot_runs_again_for_the_next_engine() {
    let rig = rig(usual(), 1);
    let order = || vec![group(ADD.id(), vec![task(0, vec![is(1), is(2)])])];
    rig.pool.take(order(), None);
    assert_eq!(rig.number(0), 3);
    // The same engine may name it to those that take what it gave; the next one has never heard of the end.
    rig.pool.take(order(), None);
    rig.pool.engine_changed();
    let mut named = Retelling::of(1);
    named.note(&order());
    rig.pool.take(order(), Some(named));
    assert_eq!(rig.number(0), 3);
    // What has ended and was not taken is reported to that one, and not run twice.
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(3)])]);
    let untaken = rig.runtime.block_on(rig.pool.next_reports());
    rig.pool.engine_changed();
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(3)]), task(2, vec![is(1), is(4)])]);
    assert_eq!((untaken.groups[0].ended[0].task, rig.number(2)), (TaskIndex(1), 5));
}

#[test]
fn tasks_take_as_many_slots_as_they_say() {
    const BOTH: Function<(), u32> = Function::new("both");
    let running = Arc::new(AtomicU32::new(0));
    let meet = Arc::new(Barrier::new(2));
    let mut registry = usual();
    let (count, wait) = (running.clone(), meet);
    let both = move || {
        let now = count.fetch_add(1, Ordering::SeqCst) + 1;
        wait.wait();
        count.fetch_sub(1, Ordering::SeqCst);
        now
    };
    registry.register(BOTH, both).unwrap();
    let alone = running.clone();
    registry.register(WAIT, move |_: u64| u64::from(alone.load(Ordering::SeqCst))).unwrap();
    let rig = rig(registry, 2);
    let wide = |n: u32| {
        let Order::Run(group) = group(WAIT.id(), vec![task(n, vec![is(0)])]) else { unreachable!() };
        // More than there are: all of them.
        Order::Run(OrderGroup { slots: n, ..group })
    };
    let pair = |n: u32| group(BOTH.id(), vec![task(n, vec![]), task(n + 1, vec![])]);
    rig.pool.take(vec![pair(10), wide(2), pair(20), wide(3), pair(30)], None);
    let ends = rig.ends(8);
    let wide: Vec<u64> = ends.iter().filter(|end| end.task.0 < 10).map(number).collect();
    assert_eq!(wide, [0, 0], "nothing runs beside them: {ends:?}");
}

#[test]
fn one_that_runs_too_long_fails_and_its_thread_is_replaced() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    let Order::Run(limited) = group(WAIT.id(), vec![task(0, vec![is(0)])]) else { unreachable!() };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    begun.recv().unwrap();
    let ends = rig.ends(1);
    assert_eq!(failure(&ends[0]), (FailureCause::Function, FaultCode::new("E443")));
    // The function never returns, and others run.
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
    assert_eq!(rig.number(1), 2);
    // What it says at last is not heard, and its thread ends.
    go.send(()).unwrap();
    rig.order(ADD.id(), vec![task(2, vec![is(1), is(1)])]);
    assert_eq!(rig.number(2), 2);
}

#[test]
fn a_worker_of_which_a_slot_is_lost_for_good_says_so_and_no_earlier() {
    let Gate { registry, begun, go } = gate();
    let rig = rig_without_limits(registry, 1);
    let Order::Run(limited) = group(WAIT.id(), vec![task(0, vec![is(0)]), task(1, vec![is(0)])]) else {
        unreachable!()
    };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    begun.recv().unwrap();
    let mut now = std::time::Instant::now() + Duration::from_secs(3_600);
    let mut pass = |times: u32| {
        for _ in 0..times {
            now += Duration::from_secs(2);
            rig.pool.expire(now, threads::start);
        }
    };
    // The first is told and given up, the second told, and cannot be given up as well.
    pass(2);
    begun.recv().unwrap();
    pass(1 + MORE_CHANCES - 1);
    assert_eq!(rig.pool.stuck(), None);
    pass(1);
    assert_eq!(rig.pool.stuck().as_deref(), Some("wait"));
    go.send(()).unwrap();
    go.send(()).unwrap();
}

#[test]
fn a_function_that_looks_whether_it_is_to_stop_keeps_its_thread() {
    const PATIENT: Function<(), u64> = Function::new("patient");
    let mut registry = usual();
    let patient = |context: &Context| {
        while !context.canceled() {
            thread::sleep(Duration::from_millis(1));
        }
        7u64
    };
    registry.register(PATIENT, patient).unwrap();
    let rig = rig(registry, 1);
    let Order::Run(limited) = group(PATIENT.id(), vec![task(0, vec![])]) else { unreachable!() };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
    let ends = rig.ends(2);
    assert_eq!((failure(&ends[0]).1, number(&ends[1])), (FaultCode::new("E443"), 2));
}

#[test]
fn reports_are_grouped_by_job_in_their_order() {
    let mut reports = Reports::default();
    assert!(reports.take().is_none());
    let mut push = |nonce: u32, task: u32, bytes: usize| {
        let job = Arc::new(JobKey { job: "job".parse().unwrap(), nonce });
        let (task, outcome) = (TaskIndex(task), Outcome::Value(Value::Inline(vec![0; bytes].into())));
        let end = TaskEnd { task, attempt: 1, run_us: 0, outcome, preview: None };
        reports.push(EndedKey { job, task, serial: OrderId::default() }, end)
    };
    let firsts = [push(1, 0, 1), push(1, 1, 1), push(2, 0, 1), push(1, 2, 4 << 20), push(1, 3, 1)];
    assert_eq!(firsts, [true, false, false, false, false]);
    let mut tasks = || {
        let groups = reports.take().unwrap().groups.into_iter();
        let tasks = |group: ReportGroup| group.ended.iter().map(|end| end.task.0).collect();
        groups.map(|group| (group.nonce, tasks(group))).collect::<Vec<(u32, Vec<u32>)>>()
    };
    assert_eq!(tasks(), [(1, vec![0, 1]), (2, vec![0]), (1, vec![2])], "and no more bytes than fit");
    assert_eq!(tasks(), [(1, vec![3])]);
}

#[test]
fn a_closed_pool_ends_what_runs_and_begins_nothing() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    rig.order(WAIT.id(), vec![task(0, vec![is(0)]), task(1, vec![is(1)])]);
    begun.recv().unwrap();
    rig.pool.close();
    assert!(!rig.pool.is_done());
    go.send(()).unwrap();
    assert_eq!(rig.number(0), 0);
    assert!(rig.pool.is_done() && begun.try_recv().is_err());
}

#[test]
fn of_a_call_that_runs_the_engine_is_told_since_when_and_what_it_says_of_its_progress() {
    const LONG: Function<(), ()> = Function::new("long");
    let (begun, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begin, end, mut registry) = (begun.clone(), go.clone(), Registry::new());
    let long = move |context: &Context| {
        context.report_progress(1, 3, "first");
        context.report_progress(2, 3, "second");
        begin.wait();
        end.wait();
    };
    registry.register(LONG, long).unwrap();
    let rig = rig(registry, 1);
    rig.order(LONG.id(), vec![task(5, vec![])]);
    begun.wait();
    let [call] = &rig.pool.running()[..] else { panic!("{:?}", rig.pool.running()) };
    assert_eq!(
        (&call.job.to_string()[..], call.nonce, call.task, call.attempt),
        ("job", NONCE, TaskIndex(5), 1)
    );
    assert_eq!(call.progress.as_ref().unwrap().to_string(), "2 of 3, second");
    go.wait();
    rig.ends(1);
    assert_eq!(rig.pool.running(), []);
}
