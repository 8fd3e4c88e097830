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
use syncline_ps::content::digest_of;

use syncline_ps::{PsError, client::CancelToken};
use syncline_rpc::{EngineAddresses, ShardFault, Token};
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::{ContentDigest, EngineEpoch, SubmissionId},
    tasks::{
        Attempt, Attempts, BlobValue, Bytes, FailureCause, FunctionId, Gives, MAX_INLINE_BYTES, OneArg,
        Order, OrderArg, OrderGroup, Outcome, ReportGroup, Spawned, TaskEnd, TaskIndex, TaskOrder, Value,
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
    functions::{ArgumentError, Context, Function, Next, Registry, Salt, ValueStore, task_salt},
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

mod engines;
mod limits;
mod orders;
mod shard_away;
mod stopping;

/// Blobs by digest, and what prevents the next uses, the last one first.
#[derive(Default, Clone)]
struct Memory(Arc<Mutex<BTreeMap<ContentDigest, (Salt, Bytes)>>>, Arc<Mutex<Vec<PsError>>>);

impl Memory {
    fn fail_if_due(&self) -> Result<(), PsError> {
        self.1.lock().unwrap().pop().map_or(Ok(()), Err)
    }
}

impl ValueStore for Memory {
    fn put(&self, salt: Salt, value: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
        self.fail_if_due()?;
        let digest = digest_of(&[&salt[..], value].concat());
        self.0.lock().unwrap().insert(digest, (salt, value.into()));
        Ok(BlobValue { digest, bytes: value.len() as u64 })
    }

    fn get(&self, blob: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
        self.fail_if_due()?;
        let digest = blob.digest;
        let found = self.0.lock().unwrap().get(&digest).map(|(_, value)| value.clone());
        found.ok_or(PsError::Refused { fault: ShardFault::MissingBlob { digest } })
    }
}

/// A pool, and what an engine would see of it.
struct Rig<S = Memory> {
    pool: Pool,
    store: S,
    runtime: Runtime,
}

impl<S> Drop for Rig<S> {
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
    rig_with(Memory::default(), registry, slots, given_up)
}

fn rig_with<S: ValueStore + Clone + 'static>(
    store: S,
    registry: Registry,
    slots: u32,
    given_up: GivenUp,
) -> Rig<S> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let around = CallEnvironment::new(store.clone(), nowhere(), runtime.handle().clone());
    let pool = Pool::start(registry, slots, around, given_up).unwrap();
    Rig { pool, store, runtime }
}

impl<S> Rig<S> {
    fn order(&self, function: FunctionId, tasks: Vec<TaskOrder>) {
        self.pool.take(vec![group(function, tasks)], None);
    }

    /// The next ends, so many; acknowledged.
    fn ends(&self, count: usize) -> Vec<TaskEnd> {
        let mut ends = Vec::new();
        while ends.len() < count {
            let batch = self.runtime.block_on(self.pool.next_reports());
            ends.extend(batch.ended_tasks.groups.iter().flat_map(|group| group.ended.clone()));
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
    match &end.outcome {
        Outcome::Failed(failure) => (failure.cause, failure.code),
        Outcome::ArgumentsLost(lost) => (lost.failure.cause, lost.failure.code),
        other => panic!("{other:?}"),
    }
}

fn submission() -> SubmissionId {
    SubmissionId { job: "job".parse().unwrap(), nonce: NONCE }
}

fn group(function: FunctionId, tasks: Vec<TaskOrder>) -> Order {
    Order::Run(OrderGroup { submission: submission(), function, slots: 1, run_limit_ms: None, tasks })
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
    let tasks = tasks.iter().map(|&(task, attempt)| Attempt { task: TaskIndex(task), attempt }).collect();
    Order::Recall(Attempts { submission: submission(), tasks })
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
