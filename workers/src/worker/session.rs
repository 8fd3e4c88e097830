//! What a worker and the engine say to each other under one incarnation.

use std::{
    error::Error,
    fmt,
    sync::{Arc, mpsc},
    time::Duration,
};

use syncline_engine::rpc::{
    Activity, CallError, EngineAddresses, EngineFault, EngineLink, JobSetup, OrderCursor, OutageLogger,
    RegisterReply, WorkerKey, WorkerServiceClient, within,
};
use syncline_ps::PsError;
use syncline_scheduler::{
    core::{Assignment, TaskKey, TaskReport},
    ids::{EngineEpoch, JobId},
    tasks::Order,
};
use tokio::{
    sync::{Mutex, mpsc as async_mpsc},
    time::{Instant, sleep, timeout},
};
use tracing::{debug, warn};

use super::{
    calls::Pool,
    error::WorkerError,
    executor::Shared,
    report::{Finished, REPORT_BATCH_WINDOW},
};

pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(100);
const POLL_WAIT_MS: u64 = 1_000;
/// How often a worker that stops looks whether its last calls have ended.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) type Link = EngineLink<WorkerServiceClient>;

/// What to do about an engine that is away, beside waiting.
pub(super) const ENGINE_AWAY_HINT: &str = "nothing if the engine is about to start; otherwise see whether --engine names it, or all engines, and can be reached";

pub(super) fn away(engines: &EngineAddresses, cause: &dyn fmt::Display) -> WorkerError {
    WorkerError::EngineAway { address: engines.to_string(), cause: cause.to_string() }
}

/// An error of a call with what is below it.
pub(super) struct ErrorChain<'a>(pub &'a CallError);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut below = self.0.source();
        while let Some(cause) = below {
            write!(f, ": {cause}")?;
            below = cause.source();
        }
        Ok(())
    }
}

/// What the loops of one session share.
pub(super) struct Session {
    link: Link,
    who: WorkerKey,
    holding: Mutex<Vec<TaskKey>>,
    pub(super) shared: Arc<Shared>,
    /// `None`: this worker has no functions.
    pub(super) calls: Option<Pool>,
    /// The highest epoch seen; answers of lower ones come from an engine that was deposed.
    epoch: Mutex<EngineEpoch>,
}

impl Session {
    /// Begins under what the engine has said.
    pub(super) fn new(
        link: Link,
        registered: &RegisterReply,
        shared: Arc<Shared>,
        calls: Option<Pool>,
    ) -> Self {
        let (who, epoch) = (registered.key(), Mutex::new(registered.epoch));
        Self { link, who, holding: Mutex::default(), shared, calls, epoch }
    }

    fn count_calls(&self, count: impl Fn(&Pool) -> usize) -> u32 {
        self.calls.as_ref().map_or(0, |pool| u32::try_from(count(pool)).unwrap_or(u32::MAX))
    }

    /// Takes tasks from the engine; returns when the engine has dropped this incarnation.
    pub(super) async fn poll(&self, assignments: &mpsc::Sender<Assignment>) {
        let mut outage = OutageLogger::default();
        let mut cursor = OrderCursor::default();
        loop {
            let (running_ms, longest_ms) = self.shared.timer.running_and_longest_ms();
            let activity = Activity {
                holding: self.holding.lock().await.clone(),
                blocked_on: self.shared.blocked_on(),
                running_ms,
                longest_ms,
                tasks: self.count_calls(Pool::count),
                stopping: self.count_calls(Pool::stopping),
            };
            let limit = CALL_TIMEOUT + Duration::from_millis(POLL_WAIT_MS);
            let poll = self.calls.as_ref().map(Pool::poll_begins);
            let call = self.link.call(|c| async move {
                c.poll(within(limit), self.who, activity, cursor, POLL_WAIT_MS).await
            });
            match call.await {
                Ok(Ok(news)) => {
                    outage.resolve("the engine is there");
                    if !self.is_current(news.epoch).await {
                        // A deposed engine that does not know it yet: it will not answer for long.
                        sleep(RETRY_DELAY).await;
                        continue;
                    }
                    if !news.shards.is_empty() {
                        self.shared.shards.set(news.shards);
                    }
                    if let (Some(pool), Some(poll)) = (&self.calls, poll) {
                        take_orders(pool, &mut cursor, news.epoch, news.first_order, news.orders);
                        pool.poll_answered(poll);
                    }
                    let mut holding = self.holding.lock().await;
                    holding.retain(|k| !news.revoked.contains(k));
                    self.shared.revoke(&news.revoked);
                    for assignment in news.assignments {
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
    pub(super) async fn report(&self, mut finished: async_mpsc::UnboundedReceiver<Finished>) {
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

    /// Sends the ends of general tasks, each until it is acknowledged and in order. What ends meanwhile goes with the next
    /// call.
    pub(super) async fn report_calls(&self) {
        let Some(pool) = &self.calls else { return std::future::pending().await };
        loop {
            let batch = pool.next_reports().await;
            loop {
                let groups = batch.groups.clone();
                let call = self
                    .link
                    .call(|c| async move { c.finished(within(CALL_TIMEOUT), self.who, groups).await });
                match call.await {
                    Ok(Ok(epoch)) if self.is_current(epoch).await => break,
                    Ok(Ok(_)) => {}
                    Ok(Err(fault)) => debug!(%fault, "ends of tasks are not taken yet"),
                    Err(error) => debug!(%error, "ends of tasks did not come through"),
                }
                sleep(RETRY_DELAY).await;
            }
            pool.acknowledge(batch);
        }
    }

    /// Keeps general tasks to their limits.
    pub(super) async fn enforce_limits(&self) {
        match &self.calls {
            Some(pool) => pool.enforce_limits().await,
            None => std::future::pending().await,
        }
    }

    /// Begins no more general tasks, and waits up to `limit` until those that run have ended and are reported.
    pub(super) async fn drain_calls(&self, limit: Duration) {
        let Some(pool) = &self.calls else { return };
        pool.close();
        let give_up = Instant::now() + limit;
        while !pool.is_done() && Instant::now() < give_up {
            sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Notes an engine's epoch; `false` if a newer engine has been heard already.
    async fn is_current(&self, epoch: EngineEpoch) -> bool {
        let mut highest = self.epoch.lock().await;
        *highest = (*highest).max(epoch);
        epoch == *highest
    }

    pub(super) async fn setup_unless_canceled(&self, job: &JobId) -> Result<JobSetup, WorkerError> {
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

    pub(super) async fn leave(&self) {
        let call = self.link.call(|c| async move { c.leave(within(Duration::from_secs(2)), self.who).await });
        if let Err(error) = call.await {
            debug!(%error, "could not leave");
        }
    }
}

/// Takes what is new among the orders of a poll's answer, the first of which has this number.
fn take_orders(
    pool: &Pool,
    cursor: &mut OrderCursor,
    epoch: EngineEpoch,
    first: u64,
    mut orders: Vec<Order>,
) {
    let all = epoch != cursor.epoch;
    if all {
        *cursor = OrderCursor { epoch, next: first };
    }
    // Those below the cursor were taken from an earlier answer.
    let known = usize::try_from(cursor.next.saturating_sub(first)).unwrap_or(usize::MAX);
    orders.drain(..known.min(orders.len()));
    cursor.next = cursor.next.max(first) + orders.len() as u64;
    pool.take(orders, all);
}
