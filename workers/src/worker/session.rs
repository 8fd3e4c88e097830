//! What a worker and the engine say to each other under one incarnation.

use std::{
    collections::HashSet,
    fmt,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use syncline_ps::PsError;
use syncline_rpc::{
    CallError, EngineAddresses, EngineFault, EngineLink, JobSetup, NoDescriptor, RegisterReply, WorkerKey,
    WorkerServiceClient, hello::HelloError, threads::lock, within,
};
use syncline_scheduler::{
    core::{Assignment, TaskKey, TaskReport},
    ids::{EngineEpoch, JobId},
};
use tokio::{
    sync::{Notify, mpsc as async_mpsc},
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use super::{
    calls::{Pool, STUCK_AFTER},
    error::WorkerError,
    report::{Finished, REPORT_BATCH_WINDOW},
    task_tracker::TaskTracker,
};
use crate::error_chain;

pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A poll that brings ends of tasks may be answered so late where Redis is slow.
const SHORTEST_POLL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a worker that stops tries to say so.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(100);
/// How often a worker that stops checks whether its last calls have ended.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) type Link = EngineLink<WorkerServiceClient>;

/// What to do about an engine that is away, beside waiting.
pub(super) const ENGINE_AWAY_HINT: &str = "nothing if the engine is about to start; otherwise see whether --engine names it, or all engines, and can be reached";

/// Where it is of another release.
const OTHER_RELEASE_HINT: &str = "nothing in the middle of an upgrade; otherwise start a worker of the engine's release, and build a program of your own anew with that";

/// What to do about an engine that this error keeps away.
pub(super) fn away_hint(error: &CallError) -> &'static str {
    match error {
        CallError::Hello(HelloError::Version { .. }) => OTHER_RELEASE_HINT,
        CallError::Hello(HelloError::Io(cause)) if NoDescriptor::behind(cause).is_some() => {
            NoDescriptor::HINT
        }
        _ => ENGINE_AWAY_HINT,
    }
}

pub(super) fn away(engines: &EngineAddresses, cause: &dyn fmt::Display) -> WorkerError {
    WorkerError::EngineAway { address: engines.to_string(), cause: cause.to_string() }
}

/// Whether an engine may take this worker later: one of another release is replaced in the middle of an
/// upgrade, and where one did before, another token is put right there.
pub(super) fn may_pass(error: &CallError, was_served: bool) -> bool {
    let is_other_release = matches!(error, CallError::Hello(HelloError::Version { .. }));
    error.is_passing() || is_other_release || was_served && matches!(error, CallError::Hello(_))
}

/// The executor has ended.
pub(super) struct Hangup;

/// Where tasks for the executor go. It ends when the last clone is gone, or one has hung up.
#[derive(Clone)]
pub(super) struct TaskSender(Arc<Mutex<Option<mpsc::Sender<Assignment>>>>);

impl TaskSender {
    pub(super) fn new(executor: mpsc::Sender<Assignment>) -> Self {
        Self(Arc::new(Mutex::new(Some(executor))))
    }

    /// Gives it a task, unless it was told that there are no more.
    pub(super) fn send(&self, assignment: Assignment) -> Result<(), Hangup> {
        lock(&self.0).as_ref().map_or(Ok(()), |executor| executor.send(assignment).map_err(|_| Hangup))
    }

    fn hang_up(&self) {
        lock(&self.0).take();
    }
}

/// An error of a call with what is below it.
pub(super) struct ErrorChain<'a>(pub &'a CallError);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain: Vec<String> = error_chain(self.0).map(ToString::to_string).collect();
        f.write_str(&chain.join(": "))
    }
}

/// What the loops of one session share.
pub(super) struct Session {
    pub(super) link: Link,
    pub(super) who: WorkerKey,
    /// Iterations and evaluations that were received and whose report is not acknowledged.
    pub(super) holding: Mutex<Vec<TaskKey>>,
    /// The executor has ended, and every report is acknowledged.
    reported: Notify,
    pub(super) tracker: Arc<TaskTracker>,
    /// `None`: this worker has no functions.
    pub(super) calls: Option<Pool>,
    /// It has asked to be dropped.
    is_leaving: AtomicBool,
    /// The highest epoch seen; answers of lower ones come from an engine that was deposed.
    epoch: AtomicU64,
    /// How long a poll may take longer than it waits.
    pub(super) poll_timeout: Duration,
}

impl Session {
    /// Begins under what the engine has said.
    pub(super) fn new(
        link: Link,
        registered: &RegisterReply,
        tracker: Arc<TaskTracker>,
        calls: Option<Pool>,
    ) -> Self {
        let (who, epoch) = (registered.who, AtomicU64::new(registered.epoch.0));
        let is_leaving = AtomicBool::default();
        let silence = Duration::from_millis(registered.silence_ms);
        let poll_timeout = silence.clamp(SHORTEST_POLL_TIMEOUT, CALL_TIMEOUT);
        let (holding, reported) = (Mutex::default(), Notify::new());
        Self { link, who, holding, reported, tracker, calls, is_leaving, epoch, poll_timeout }
    }

    /// Lets the executor go when the step in hand has ended, and waits for that, and until it is reported.
    /// The shards would refuse the rest of a push whose worker has left already.
    pub(super) async fn finish_step(&self, tasks: &TaskSender, limit: Duration) {
        self.tracker.close();
        tasks.hang_up();
        let _ = timeout(limit, self.reported.notified()).await;
    }

    /// Sends every report until it is acknowledged, in order.
    pub(super) async fn report(&self, mut finished: async_mpsc::UnboundedReceiver<Finished>) {
        let mut waiting: Vec<Finished> = Vec::new();
        loop {
            if waiting.is_empty() {
                match finished.recv().await {
                    Some(first) => waiting.push(first),
                    // The executor has ended; `run_session` hears of it by itself.
                    None => {
                        self.reported.notify_one();
                        pending().await
                    }
                }
                // Not looking at the queue meanwhile: nobody needs to be woken for what comes in.
                let _ = timeout(REPORT_BATCH_WINDOW, self.tracker.urgent()).await;
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
                Ok(Ok(epoch)) if self.is_current(epoch) => {
                    // Those of a round of local steps come together, and may be thousands.
                    let done: HashSet<TaskKey> = waiting.drain(..).map(|f| f.key).collect();
                    lock(&self.holding).retain(|k| !done.contains(k));
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

    /// Keeps general tasks to their limits.
    pub(super) async fn enforce_limits(&self) {
        match &self.calls {
            Some(pool) => pool.enforce_limits().await,
            None => pending().await,
        }
    }

    /// Begins no more general tasks, and waits up to `limit` until those that run have ended and are
    /// reported.
    pub(super) async fn drain_calls(&self, limit: Duration) {
        let Some(pool) = &self.calls else { return };
        pool.close();
        let give_up = Instant::now() + limit;
        while !pool.is_done() && Instant::now() < give_up {
            sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Whether a function that was told to stop keeps a slot for good.
    pub(super) fn is_stuck(&self) -> bool {
        self.calls.as_ref().is_some_and(|pool| pool.stuck().is_some())
    }

    /// An error if a function keeps a slot for good.
    pub(super) fn check_not_stuck(&self) -> Result<(), WorkerError> {
        match self.calls.as_ref().and_then(Pool::stuck) {
            Some(function) => Err(WorkerError::Stuck {
                worker: self.who.incarnation,
                task: format!("function `{function}` and others that were told to stop"),
                after_s: STUCK_AFTER.as_secs(),
            }),
            None => Ok(()),
        }
    }

    /// Notes an engine's epoch; `false` if a newer engine has been heard already.
    pub(super) fn is_current(&self, epoch: EngineEpoch) -> bool {
        epoch.0 >= self.epoch.fetch_max(epoch.0, Ordering::Relaxed)
    }

    pub(super) async fn setup_unless_canceled(&self, job: &JobId) -> Result<JobSetup, WorkerError> {
        tokio::select! {
            setup = self.setup(job) => setup,
            () = self.tracker.canceled() => Err(PsError::Canceled.into()),
        }
    }

    async fn setup(&self, job: &JobId) -> Result<JobSetup, WorkerError> {
        loop {
            let asked = job.clone();
            let call = self.link.call(|c| async move { c.setup(within(CALL_TIMEOUT), asked).await });
            match call.await {
                // One that was deposed may know the job of before.
                Ok(Ok(setup)) if self.is_current(setup.epoch) => return Ok(setup),
                Ok(Ok(_) | Err(EngineFault::NotActive { .. } | EngineFault::Store { .. })) => {}
                Ok(Err(fault)) => return Err(fault.into()),
                Err(error) if may_pass(&error, true) => {}
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

    /// Whether being dropped is what it asked for.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(super) async fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        let begun = self.calls.as_ref().map(Pool::begun).unwrap_or_default();
        let since = Instant::now();
        loop {
            let begun = begun.clone();
            let leave =
                |c: WorkerServiceClient| async move { c.leave(within(LEAVE_TIMEOUT), self.who, begun).await };
            match self.link.call(leave).await {
                Ok(Ok(()) | Err(EngineFault::Dropped)) => return,
                unheard => debug!(?unheard, "could not leave"),
            }
            // An engine that was just started again is told at the second try; it would wait for this worker
            // otherwise.
            if since.elapsed() > LEAVE_TIMEOUT {
                return;
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_served_once_waits_until_it_is_again_table() {
        let refused = || CallError::from(HelloError::Token);
        let other_release = || CallError::from(HelloError::Version { theirs: 1 });
        let away = || CallError::from(HelloError::Io(std::io::ErrorKind::ConnectionRefused.into()));
        for (error, at_first, later) in
            [(refused(), false, true), (other_release(), true, true), (away(), true, true)]
        {
            assert_eq!((may_pass(&error, false), may_pass(&error, true)), (at_first, later), "{error}");
        }
        assert!(away_hint(&other_release()).contains("of the engine's release"));
        assert!(away_hint(&away()).contains("--engine"));
        let at_limit = std::io::Error::from_raw_os_error(libc::EMFILE);
        assert!(away_hint(&HelloError::Io(at_limit).into()).contains("ulimit -n"));
        let panicked = CallError::Panicked { panic: "bug".into() };
        assert!(!may_pass(&panicked, true), "the same would come again");
    }
}
