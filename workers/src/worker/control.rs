//! The side of a worker that talks to the engine.

use std::{
    future::pending,
    panic::resume_unwind,
    sync::{Arc, mpsc},
    time::Duration,
};

use syncline_kit::Device;
use syncline_ps::client::Addresses;
use syncline_rpc::{
    OutageLogger, RegisterReply, WorkerHello, WorkerServiceClient, hello::Role, hostname, threads, within,
};
use syncline_runtime::Runtime;
use syncline_scheduler::{
    core::Assignment,
    ids::{Incarnation, JobId},
    tasks::{Capacity, Resources},
};
use tokio::{
    runtime::Handle,
    sync::{mpsc as async_mpsc, oneshot, watch},
    task::JoinSet,
    time::sleep,
};
use tracing::{info, warn};

use super::{
    WorkerOptions,
    calls::{CallEnvironment, GivenUp, Pool},
    cores,
    device_watch::DeviceWatch,
    error::WorkerError,
    executor::{End, execute},
    executor_end::{ExecutorEnd, StepEnd, StepLimits, StepWaiter},
    job::WorkerContext,
    local_steps::UnfitJobs,
    models::Models,
    report::Finished,
    session::{
        CALL_TIMEOUT, ENGINE_AWAY_HINT, ErrorChain, Link, RETRY_DELAY, Session, TaskSender, away, away_hint,
        may_pass,
    },
    task_tracker::TaskTracker,
    training_slots::TrainingSlot,
};
use crate::{
    client::Client,
    functions::{RUN_MODEL, ShardValues},
};

/// What has begun, a step or general tasks, gets this long to end after a stop, before the worker leaves.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);
/// A step that is given up then ends within this time, or it hangs in something. `up` waits for the sum.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for a step after the engine has dropped us, as long as an engine takes one for alive: long steps
/// are worth waiting for, because we go on afterwards, and all other slots of this process with us.
const DROP_TIMEOUT: Duration = Duration::from_secs(300);

/// Works as one training slot until `stop` becomes true. Returns early only if the engine turns this worker
/// away for good, a step hangs, or the device is lost.
pub(super) async fn run_slot(
    options: WorkerOptions,
    slot: TrainingSlot,
    mut stop: watch::Receiver<bool>,
) -> Result<(), WorkerError> {
    let open = |transport| WorkerServiceClient::new(tarpc::client::Config::default(), transport).spawn();
    let link = Link::new(options.engine.clone(), Role::Worker, options.token.clone(), open);
    let runtime = options.runtime.as_ref();
    let device = runtime.map(|runtime| DeviceWatch::new(runtime, options.exec.device));
    let models = runtime.zip(device.as_ref()).filter(|_| slot.has_general_tasks());
    let models =
        models.map(|(runtime, device)| Models::new(runtime.clone(), options.exec.clone(), device.clone()));
    // Ends when this function returns.
    let mut looks = JoinSet::new();
    if let Some(models) = &models {
        looks.spawn(models.clone().let_go_of_idle());
    }
    let (unfit, given_up, shards) = (UnfitJobs::default(), GivenUp::default(), Addresses::default());
    let mut was_served = false;
    while !*stop.borrow() {
        let registered = tokio::select! {
            registered = register(&options, slot, &link, was_served) => registered?,
            () = stopped(&mut stop) => return Ok(()),
        };
        was_served = true;
        let before = Before {
            device: device.as_ref(),
            models: models.as_ref(),
            unfit: &unfit,
            given_up: &given_up,
            shards: &shards,
        };
        run_session(&options, slot, &link, registered, before, &mut stop).await?;
    }
    Ok(())
}

/// Returns when the worker is told to stop.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone tells it as well.
    let _ = stop.wait_for(|s| *s).await;
}

/// What the worker offers to general tasks.
fn capacity(options: &WorkerOptions, slot: TrainingSlot) -> Capacity {
    if !slot.has_general_tasks() {
        return Capacity::default();
    }
    let mut functions = options.registry.ids();
    functions.extend(options.runtime.is_some().then(|| RUN_MODEL.id()));
    match functions.is_empty() {
        true => Capacity::default(),
        false => Capacity {
            slots: options.slots.max(1),
            functions,
            labels: options.labels.clone(),
            resources: Resources { memory_bytes: options.memory_bytes, gpus: gpus(options) },
        },
    }
}

/// The GPU that it computes on, if it does.
fn gpus(options: &WorkerOptions) -> u32 {
    u32::from(options.runtime.is_some() && options.exec.device != Device::Cpu)
}

async fn register(
    options: &WorkerOptions,
    slot: TrainingSlot,
    link: &Link,
    was_served: bool,
) -> Result<RegisterReply, WorkerError> {
    let hello = WorkerHello {
        name: options.name.clone(),
        host: hostname().unwrap_or_else(|| "?".into()),
        pid: std::process::id(),
        process: slot.process,
        training_slot: slot.number,
        device: options.exec.device.to_string(),
        max_batch: options.max_batch,
        trains: options.runtime.is_some(),
        capacity: capacity(options, slot),
    };
    let mut outage = OutageLogger::default();
    loop {
        let hello = hello.clone();
        let (problem, hint) =
            match link.call(|c| async move { c.register(within(CALL_TIMEOUT), hello).await }).await {
                Ok(Ok(registered)) => {
                    outage.resolve("the engine is there");
                    return Ok(registered);
                }
                Ok(Err(fault)) => (away(&options.engine, &fault), ENGINE_AWAY_HINT),
                Err(error) if may_pass(&error, was_served) => {
                    (away(&options.engine, &ErrorChain(&error)), away_hint(&error))
                }
                Err(source) => {
                    return Err(WorkerError::Unreachable { address: options.engine.to_string(), source });
                }
            };
        outage.report(&problem, hint);
        sleep(RETRY_DELAY).await;
    }
}

/// What the executor's thread is given, and the side that talks to the engine keeps the other ends of.
struct ExecutorChannels {
    tasks: mpsc::Receiver<Assignment>,
    finish: async_mpsc::UnboundedSender<Finished>,
    ended: oneshot::Sender<End>,
}

/// What a worker has of its sessions before.
#[derive(Clone, Copy)]
struct Before<'a> {
    device: Option<&'a DeviceWatch>,
    models: Option<&'a Models>,
    unfit: &'a UnfitJobs,
    given_up: &'a GivenUp,
    shards: &'a Addresses,
}

/// A session that has begun, and what runs for it. Where its future is dropped, what runs ends in the order of
/// the fields: the calls last.
struct RunningSession {
    loops: JoinSet<()>,
    /// A worker that does not train holds them itself: nothing comes, and nothing ends.
    unused: Option<ExecutorChannels>,
    executor: ExecutorEnd,
    assignments: TaskSender,
    session: Arc<Session>,
    calls: AbandonedAtEnd,
}

impl RunningSession {
    /// Starts the threads and tasks of a session.
    fn open(
        options: &WorkerOptions,
        slot: TrainingSlot,
        link: &Link,
        registered: &RegisterReply,
        before: Before<'_>,
    ) -> Result<Self, WorkerError> {
        let tracker = Arc::new(TaskTracker::with_shards(before.shards.clone()));
        let pool = if slot.has_general_tasks() { start_pool(options, &tracker, before)? } else { None };
        let calls = AbandonedAtEnd(pool.clone());
        let (assignments, tasks) = mpsc::channel();
        let assignments = TaskSender::new(assignments);
        let session = Arc::new(Session::new(link.clone(), registered, tracker, pool));
        let (finish, finished) = async_mpsc::unbounded_channel();
        let (ended, end) = oneshot::channel();
        let ends = ExecutorChannels { tasks, finish, ended };
        let unused = match options.runtime.as_ref().zip(before.device) {
            Some((runtime, device)) => {
                let (incarnation, unfit) = (registered.who.incarnation, before.unfit.clone());
                start_executor(options, runtime, device, incarnation, session.clone(), unfit, ends)?;
                None
            }
            None => Some(ends),
        };
        let loops = start_loops(&session, assignments.clone(), finished);
        Ok(Self { loops, unused, executor: ExecutorEnd::new(end), assignments, session, calls })
    }

    /// Returns when the worker is dropped or told to stop, or its executor has ended; with an error once the
    /// device is lost.
    async fn until_over(
        &mut self,
        device: Option<&DeviceWatch>,
        trains: bool,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), WorkerError> {
        let Self { loops, executor, assignments, session, .. } = self;
        tokio::select! {
            // First: an executor that has met it ends as well.
            biased;
            lost = device_loss(device) => {
                session.tracker.cancel();
                session.drain_calls(FINISH_TIMEOUT).await;
                session.leave().await;
                return Err(lost);
            }
            over = loops.join_next() => {
                // A panic goes on here, as if the loop had run here.
                if let Some(Err(error)) = over && let Ok(panic) = error.try_into_panic() {
                    resume_unwind(panic);
                }
                if session.is_stuck() {
                    session.drain_calls(FINISH_TIMEOUT).await;
                    session.leave().await;
                }
            }
            _ = executor.wait() => {}
            () = stopped(stop) => {
                tokio::select! {
                    // The engine has dropped the worker meanwhile.
                    _ = loops.join_next() => {}
                    () = finish_in_hand(session, trains.then_some(&*assignments)) => {}
                }
                // A step that was not waited for must not begin its push while the shards are told that the
                // worker leaves.
                session.tracker.cancel();
                session.leave().await;
            }
        }
        Ok(())
    }

    /// Ends all that runs but the executor, which ends by itself once nobody has anything for it.
    async fn close(self) -> (Arc<Session>, ExecutorEnd) {
        let Self { mut loops, unused, executor, assignments, session, calls } = self;
        loops.shutdown().await;
        drop(assignments);
        session.tracker.cancel();
        drop(calls);
        drop(unused);
        (session, executor)
    }
}

/// One session under one incarnation: ends when the worker is dropped or told to stop.
async fn run_session(
    options: &WorkerOptions,
    slot: TrainingSlot,
    link: &Link,
    registered: RegisterReply,
    before: Before<'_>,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), WorkerError> {
    let incarnation = registered.who.incarnation;
    log_registration(options, slot, incarnation);
    let trains = options.runtime.is_some();
    let mut running = RunningSession::open(options, slot, link, &registered, before)?;
    let over = running.until_over(before.device, trains, stop).await;
    let (session, mut executor) = running.close().await;
    // Where the device is lost the process ends anyway, and with it what its threads still wait for on it.
    over?;
    if trains {
        wait_for_executor(&session, incarnation, &mut executor, stop).await?;
    }
    info!(worker = %incarnation, "this incarnation is over");
    session.check_not_stuck()?;
    if let Some(pool) = session.calls.as_ref().filter(|_| !*stop.borrow()) {
        pool.give_way().await;
    }
    Ok(())
}

fn log_registration(options: &WorkerOptions, slot: TrainingSlot, incarnation: Incarnation) {
    let (name, number) = (&options.name, slot.number);
    match &options.runtime {
        None => info!(worker = %incarnation, name, slot = number, "registered"),
        Some(_) => {
            let (device, threads) = (options.exec.device, options.exec.intra_threads);
            info!(worker = %incarnation, name, slot = number, %device, threads, cores = cores(), "registered");
        }
    }
}

/// Threads for general tasks, which would wait forever where the future of a session is dropped, or ends
/// early.
struct AbandonedAtEnd(Option<Pool>);

impl Drop for AbandonedAtEnd {
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.abandon();
        }
    }
}

/// Returns once the device is lost, if there is one.
async fn device_loss(device: Option<&DeviceWatch>) -> WorkerError {
    match device {
        Some(device) => device.lost().await,
        None => pending().await,
    }
}

/// Starts what a session talks about, each in a task of its own: in a runtime with one thread, waking the
/// future that the thread blocks on takes a system call, and waking a task takes none. The first of them ends
/// when the engine has dropped the worker.
fn start_loops(
    session: &Arc<Session>,
    assignments: TaskSender,
    finished: async_mpsc::UnboundedReceiver<Finished>,
) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    let each = || session.clone();
    let (poll, report, enforce_limits) = (each(), each(), each());
    loops.spawn(async move { poll.poll(&assignments).await });
    loops.spawn(async move { report.report(finished).await });
    loops.spawn(async move { enforce_limits.enforce_limits().await });
    loops
}

/// Begins nothing any more; returns when the step and the general tasks in hand have ended and are reported,
/// or time is over.
async fn finish_in_hand(session: &Session, executor: Option<&TaskSender>) {
    tokio::join!(session.drain_calls(FINISH_TIMEOUT), async {
        if let Some(executor) = executor {
            session.finish_step(executor, FINISH_TIMEOUT).await;
        }
    });
}

/// The threads for general tasks, if this worker has functions.
fn start_pool(
    options: &WorkerOptions,
    tracker: &TaskTracker,
    Before { models, given_up, .. }: Before<'_>,
) -> Result<Option<Pool>, WorkerError> {
    let store = ShardValues::new(options.token.clone(), tracker.shards.clone());
    let mut registry = options.registry.clone();
    if let Some(models) = models {
        models.register(store.clone(), &mut registry)?;
    }
    if registry.is_empty() {
        return Ok(None);
    }
    // Its first call may come in an outage of the engine, days later.
    let client = Client::new(options.engine.clone(), options.token.clone()).known_there();
    let around = CallEnvironment::new(store, client, Handle::current());
    let pool = Pool::start(registry, options.slots.max(1), around, given_up.clone());
    Ok(Some(pool?))
}

/// Starts the thread that trains. Nobody joins it: what it hangs in must not hang us.
fn start_executor(
    options: &WorkerOptions,
    runtime: &Runtime,
    device: &DeviceWatch,
    incarnation: Incarnation,
    session: Arc<Session>,
    unfit: UnfitJobs,
    ends: ExecutorChannels,
) -> Result<(), WorkerError> {
    let context = WorkerContext {
        incarnation,
        token: options.token.clone(),
        runtime: runtime.clone(),
        exec: options.exec.clone(),
        device: device.clone(),
        split_batch: options.split_batch,
        throttle: options.throttle,
        transport: options.transport,
        max_batch: options.max_batch,
        // Memory of this process is where they are on a CPU, and splitting batches is worth more there.
        resident_rounds: options.exec.device != Device::Cpu,
        unfit,
    };
    let handle = Handle::current();
    let tracker = session.tracker.clone();
    threads::spawn(&format!("executor-{incarnation}"), move || {
        let ExecutorChannels { tasks, finish, ended } = ends;
        let setup = |job: &JobId| handle.block_on(session.setup_unless_canceled(job));
        let _ = ended.send(execute(&context, &tasks, &finish, &tracker, setup));
    })?;
    Ok(())
}

/// Waits for the end of the executor, if it is not there yet.
async fn wait_for_executor(
    session: &Session,
    incarnation: Incarnation,
    executor: &mut ExecutorEnd,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), WorkerError> {
    let limits = StepLimits { dropped: DROP_TIMEOUT, stopping: STOP_TIMEOUT };
    match executor.wait_for_step(stop, limits).await {
        StepEnd::Ended(Ok(End::Dropped | End::Stopped | End::DeviceLost)) => Ok(()),
        StepEnd::Ended(Err(_)) => Err(WorkerError::Executor { cause: "it panicked".into() }),
        StepEnd::GivenUp { after, by } => {
            let task = session.tracker.running().unwrap_or_else(|| "no task".into());
            let stuck = WorkerError::Stuck { worker: incarnation, task, after_s: after.as_secs() };
            match by {
                StepWaiter::Dropped => Err(stuck),
                // The process ends anyway.
                StepWaiter::Stopping => {
                    warn!(error = %stuck, "not waited for");
                    Ok(())
                }
            }
        }
    }
}
