//! The side of a worker that talks to the engine.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use syncline_engine::rpc::{
    Outage, Registered, WorkerHello, WorkerServiceClient, hello::Role, hostname, within,
};
use syncline_runtime::Runtime;
use syncline_scheduler::{
    core::Assignment,
    ids::{Incarnation, JobId},
    tasks::Capacity,
};
use tokio::{
    runtime::Handle,
    sync::{
        mpsc as async_mpsc,
        oneshot::{self, error::RecvError},
        watch,
    },
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{
    WorkerOptions,
    calls::{Pool, Surroundings},
    error::WorkerError,
    executor::{End, Shared, execute},
    job::WorkerContext,
    report::Finished,
    session::{CALL_TIMEOUT, ENGINE_AWAY_HINT, ErrorChain, Link, RETRY_DELAY, Session, away},
};
use crate::functions::ShardValues;

/// A step that has begun ends within this time of a stop, or it hangs in something.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);
/// General tasks that have begun get this long to end after a stop.
const CALLS_STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for a step after the engine has dropped us: long steps are worth waiting for, because we go on afterwards.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

/// Works until `stop` becomes true. Returns early only if the engine turns this worker away for good.
pub async fn run(options: WorkerOptions, mut stop: watch::Receiver<bool>) -> Result<(), WorkerError> {
    let open = |transport| WorkerServiceClient::new(tarpc::client::Config::default(), transport).spawn();
    let link = Link::new(options.engine.clone(), Role::Worker, options.token.clone(), open);
    while !*stop.borrow() {
        let registered = tokio::select! {
            registered = register(&options, &link) => registered?,
            () = stopped(&mut stop) => return Ok(()),
        };
        run_session(&options, &link, registered, &mut stop).await?;
    }
    Ok(())
}

/// Returns when the worker is told to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone tells it as well.
    let _ = stop.wait_for(|s| *s).await;
}

/// What the worker offers to general tasks.
fn capacity(options: &WorkerOptions) -> Capacity {
    let functions = options.registry.ids();
    match functions.is_empty() {
        true => Capacity::default(),
        false => Capacity { slots: options.slots.max(1), functions, labels: options.labels.clone() },
    }
}

async fn register(options: &WorkerOptions, link: &Link) -> Result<Registered, WorkerError> {
    let hello = WorkerHello {
        name: options.name.clone(),
        host: hostname().unwrap_or_else(|| "?".into()),
        pid: std::process::id(),
        device: options.exec.device.to_string(),
        max_batch: options.max_batch,
        trains: options.runtime.is_some(),
        capacity: capacity(options),
    };
    let mut outage = Outage::default();
    loop {
        let hello = hello.clone();
        let trouble = match link.call(|c| async move { c.register(within(CALL_TIMEOUT), hello).await }).await
        {
            Ok(Ok(registered)) => {
                outage.resolve("the engine is there");
                return Ok(registered);
            }
            Ok(Err(fault)) => away(&options.engine, &fault),
            Err(error) if error.is_passing() => away(&options.engine, &ErrorChain(&error)),
            Err(source) => {
                return Err(WorkerError::Unreachable { address: options.engine.to_string(), source });
            }
        };
        outage.report(&trouble, ENGINE_AWAY_HINT);
        sleep(RETRY_DELAY).await;
    }
}

/// What the executor's thread is given, and the side that talks to the engine keeps the other ends of.
struct ExecutorEnds {
    tasks: mpsc::Receiver<Assignment>,
    finish: async_mpsc::UnboundedSender<Finished>,
    ended: oneshot::Sender<End>,
}

/// One session under one incarnation: ends when the worker is dropped or told to stop.
async fn run_session(
    options: &WorkerOptions,
    link: &Link,
    registered: Registered,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), WorkerError> {
    let incarnation = registered.incarnation;
    info!(worker = %incarnation, name = options.name, "registered");
    let shared = Arc::<Shared>::default();
    let pool = start_pool(options, &shared)?;
    let session = Arc::new(Session::new(link.clone(), &registered, shared, pool));
    let (assignments, tasks) = mpsc::channel();
    let (finish, finished) = async_mpsc::unbounded_channel();
    let (ended, mut end) = oneshot::channel();
    let ends = ExecutorEnds { tasks, finish, ended };
    // A worker that does not train holds them itself: nothing comes, and nothing ends.
    let unused = match &options.runtime {
        Some(runtime) => {
            start_executor(options, runtime, incarnation, session.clone(), ends)?;
            None
        }
        None => Some(ends),
    };
    let mut ended = None;
    tokio::select! {
        () = session.poll(&assignments) => {},
        () = session.report(finished) => {},
        () = session.report_calls() => {},
        () = session.enforce_limits() => {},
        end = &mut end => ended = Some(end),
        () = stop_in_order(&session, stop) => session.leave().await,
    };
    session.shared.cancel();
    if let Some(pool) = &session.calls {
        pool.abandon();
    }
    drop((assignments, unused));
    let stopping = *stop.borrow();
    if options.runtime.is_some() {
        wait_for_executor(&session, incarnation, ended, end, stopping).await?;
    }
    info!(worker = %incarnation, "this incarnation is over");
    Ok(())
}

/// Returns when the worker is told to stop, and general tasks that ran have ended, or time is over.
async fn stop_in_order(session: &Session, stop: &mut watch::Receiver<bool>) {
    stopped(stop).await;
    session.drain_calls(CALLS_STOP_TIMEOUT).await;
}

/// The threads for general tasks, if this worker has functions.
fn start_pool(options: &WorkerOptions, shared: &Shared) -> Result<Option<Pool>, WorkerError> {
    if options.registry.is_empty() {
        return Ok(None);
    }
    let store = Box::new(ShardValues::new(options.token.clone(), shared.shards.clone()));
    let around = Surroundings { store, runtime: Handle::current() };
    let pool = Pool::start(options.registry.clone(), options.slots.max(1), around);
    pool.map(Some).map_err(|e| WorkerError::Executor { cause: e.to_string() })
}

/// Starts the thread that trains. Nobody joins it: what it hangs in must not hang us.
fn start_executor(
    options: &WorkerOptions,
    runtime: &Runtime,
    incarnation: Incarnation,
    session: Arc<Session>,
    ends: ExecutorEnds,
) -> Result<(), WorkerError> {
    let context = WorkerContext {
        incarnation,
        token: options.token.clone(),
        runtime: runtime.clone(),
        exec: options.exec.clone(),
        split_batch: options.split_batch,
        throttle: options.throttle,
    };
    let handle = Handle::current();
    let shared = session.shared.clone();
    std::thread::Builder::new()
        .name(format!("executor-{incarnation}"))
        .spawn(move || {
            let ExecutorEnds { tasks, finish, ended } = ends;
            let setup = |job: &JobId| handle.block_on(session.setup_unless_canceled(job));
            let _ = ended.send(execute(&context, &tasks, &finish, &shared, setup));
        })
        .map(drop)
        .map_err(|e| WorkerError::Executor { cause: e.to_string() })
}

/// Waits for the end of the executor, if it is not there yet.
async fn wait_for_executor(
    session: &Session,
    incarnation: Incarnation,
    ended: Option<Result<End, RecvError>>,
    end: oneshot::Receiver<End>,
    stopping: bool,
) -> Result<(), WorkerError> {
    // It may be in the middle of a step, which ends by itself and touches nothing any more.
    let limit = if stopping { STOP_TIMEOUT } else { DROP_TIMEOUT };
    let ended = match ended {
        Some(ended) => ended,
        None => match timeout(limit, end).await {
            Ok(ended) => ended,
            Err(_) => {
                let task = session.shared.running().unwrap_or_else(|| "no task".into());
                let stuck =
                    WorkerError::Stuck { worker: incarnation.to_string(), task, after_s: limit.as_secs() };
                if !stopping {
                    return Err(stuck);
                }
                // The process ends anyway.
                warn!(error = %stuck, "not waited for");
                return Ok(());
            }
        },
    };
    match ended {
        Ok(End::Dropped | End::Stopped) => Ok(()),
        Err(_) => Err(WorkerError::Executor { cause: "it panicked".into() }),
    }
}
<<<<<<< HEAD

impl Session {
    /// Takes tasks from the engine; returns when the engine has dropped this incarnation.
    async fn poll(&self, assignments: &mpsc::Sender<Assignment>) {
        let mut outage = Outage::default();
        loop {
            let (running_ms, longest_ms) = self.shared.timer.running_and_longest_ms();
            let activity = Activity {
                holding: self.holding.lock().await.clone(),
                blocked_on: self.shared.blocked_on(),
                running_ms,
                longest_ms,
                tasks: 0,
            };
            let limit = CALL_TIMEOUT + Duration::from_millis(POLL_WAIT_MS);
            let call = self.link.call(|c| async move {
                c.poll(within(limit), self.who, activity, OrderCursor::default(), POLL_WAIT_MS).await
            });
            match call.await {
                Ok(Ok(orders)) => {
                    outage.resolve("the engine is there");
                    if !self.is_current(orders.epoch).await {
                        // A deposed engine that does not know it yet: it will not answer for long.
                        sleep(RETRY_DELAY).await;
                        continue;
                    }
                    if !orders.shards.is_empty() {
                        self.shared.shards.set(orders.shards);
                    }
                    let mut holding = self.holding.lock().await;
                    holding.retain(|k| !orders.revoked.contains(k));
                    self.shared.revoke(&orders.revoked);
                    for assignment in orders.assignments {
                        holding.push(assignment.key.clone());
                        self.shared.queue(&assignment.key);
                        if assignments.send(assignment).is_err() {
                            return;
                        }
                    }
                }
                Ok(Err(EngineFault::Dropped)) => {
                    warn!(worker = %self.who.incarnation, "dropped by the engine");
                    return;
                }
                Ok(Err(fault)) => {
                    outage.report(&away(self.link.addresses(), &fault), ENGINE_AWAY_HINT);
                    sleep(RETRY_DELAY).await;
                }
                Err(error) => {
                    outage.report(&away(self.link.addresses(), &ErrorChain(&error)), ENGINE_AWAY_HINT);
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Sends every report until it is acknowledged, in order.
    async fn report(&self, mut finished: async_mpsc::UnboundedReceiver<Finished>) {
        let mut waiting: Vec<Finished> = Vec::new();
        loop {
            if waiting.is_empty() {
                match finished.recv().await {
                    Some(first) => waiting.push(first),
                    // The executor has ended; `run_session` hears of it by itself.
                    None => std::future::pending().await,
                }
                // Not looking at the queue meanwhile: nobody needs to be woken for what comes in.
                let _ = timeout(REPORT_BATCH_WINDOW, self.shared.urgent()).await;
            }
            while let Ok(more) = finished.try_recv() {
                waiting.push(more);
            }
            let reports: Vec<TaskReport> = waiting
                .iter()
                .map(|f| TaskReport {
                    key: f.key.clone(),
                    ended_ago_us: f.ended.elapsed().as_micros() as u64,
                    outcome: f.outcome.clone(),
                })
                .collect();
            let call =
                self.link.call(|c| async move { c.report(within(CALL_TIMEOUT), self.who, reports).await });
            match call.await {
                Ok(Ok(epoch)) if self.is_current(epoch).await => {
                    let done: Vec<TaskKey> = waiting.drain(..).map(|f| f.key).collect();
                    self.holding.lock().await.retain(|k| !done.contains(k));
                }
                Ok(Ok(_)) => sleep(RETRY_DELAY).await,
                Ok(Err(fault)) => {
                    debug!(%fault, "report is not taken yet");
                    sleep(RETRY_DELAY).await;
                }
                Err(error) => {
                    debug!(%error, "report did not come through");
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Notes an engine's epoch; `false` if a newer engine has been heard already.
    async fn is_current(&self, epoch: EngineEpoch) -> bool {
        let mut highest = self.epoch.lock().await;
        *highest = (*highest).max(epoch);
        epoch == *highest
    }

    async fn setup_unless_canceled(&self, job: &JobId) -> Result<JobSetup, WorkerError> {
        tokio::select! {
            setup = self.setup(job) => setup,
            () = self.shared.canceled() => Err(PsError::Canceled.into()),
        }
    }

    async fn setup(&self, job: &JobId) -> Result<JobSetup, WorkerError> {
        loop {
            let asked = job.clone();
            let call = self.link.call(|c| async move { c.setup(within(CALL_TIMEOUT), asked).await });
            match call.await {
                Ok(Ok(setup)) => return Ok(setup),
                Ok(Err(EngineFault::NotActive { .. })) => {}
                Ok(Err(fault)) => return Err(fault.into()),
                Err(error) if error.is_passing() => {}
                Err(source) => {
                    return Err(WorkerError::Unreachable {
                        address: self.link.addresses().to_string(),
                        source,
                    });
                }
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn leave(&self) {
        let call = self.link.call(|c| async move { c.leave(within(Duration::from_secs(2)), self.who).await });
        if let Err(error) = call.await {
            debug!(%error, "could not leave");
        }
    }
}
=======
>>>>>>> c6480f1 (Run general tasks on a worker: held orders, threads for its slots, limits, recalls and reports)
