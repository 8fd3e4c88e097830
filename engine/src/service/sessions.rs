//! Live workers: their assignments, what they hold, and the time of their last sign of life.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use syncline_rpc::{Activity, WorkerKey, threads::lock};
use syncline_scheduler::{
    core::{Assignment, TaskKey, WorkerInfo},
    graph::TaskId,
    ids::{Incarnation, Name, RegistrationId},
    tasks::{Attempts, Order, RunningCall},
};
use tokio::sync::{Notify, OwnedMutexGuard};
use tracing::warn;

use super::{order_log::OrderLog, outbox::Outbox, worker_status::WorkerStatus};

/// So much longer a worker is waited for that was another engine's: it may be some time until it knows that
/// this one leads, above all where the machine of the other is gone and nothing comes from there, not even
/// that its connection is closed.
const RESTORED_PATIENCE: Duration = Duration::from_secs(10);

/// Calls that run, as a worker told at a moment in epoch ms.
pub(super) type ToldCalls = (u64, Arc<[RunningCall]>);

/// One live worker.
#[derive(Default)]
pub(super) struct Session {
    about: WorkerInfo,
    /// What was drawn when it registered. Of one that a record of before names, as the first says that calls
    /// under its number.
    registration: OnceLock<RegistrationId>,
    /// Committed assignments whose report is not committed yet.
    pub(super) outbox: Mutex<Outbox>,
    /// What it was told of general tasks.
    pub(super) orders: Mutex<OrderLog>,
    /// When it was heard of last. It may lie ahead, for one that is waited for longer.
    pub(super) seen: Mutex<Option<Instant>>,
    /// The newest on which it has called: the end of an older one means nothing.
    connection: AtomicU64,
    /// Shared, because it names each of the thousands of iterations that a round of local steps may have.
    pub(super) activity: Mutex<Arc<Activity>>,
    /// Its calls that run, and when it told of them.
    calls: Mutex<ToldCalls>,
    pub(super) wake: Notify,
    /// Held while its reports are on their way to the loop: repeated ones wait instead of being queued
    /// twice.
    reporting: Arc<tokio::sync::Mutex<()>>,
}

type ByWorker = BTreeMap<Incarnation, Arc<Session>>;

/// All live workers; clones share them. Nothing of a session is locked while a map is.
#[derive(Clone, Default)]
pub(super) struct Sessions {
    live: Arc<Mutex<ByWorker>>,
    /// Those that are over, until the core hears of it: it may give them something until then.
    over: Arc<Mutex<ByWorker>>,
}

impl Sessions {
    /// A worker that registered.
    pub(super) fn register(&self, worker: Incarnation, about: WorkerInfo) {
        self.insert(worker, about, Instant::now());
    }

    /// A worker that a job in Redis names.
    pub(super) fn restore(&self, worker: Incarnation, about: WorkerInfo) {
        self.insert(worker, about, Instant::now() + RESTORED_PATIENCE);
    }

    fn insert(&self, worker: Incarnation, about: WorkerInfo, seen: Instant) {
        let registration = about.registration.map_or_else(OnceLock::new, OnceLock::from);
        let session = Session { about, registration, seen: Mutex::new(Some(seen)), ..Session::default() };
        lock(&self.live).insert(worker, Arc::new(session));
    }

    /// Whether the number is another worker's.
    pub(super) fn is_superseded(&self, who: WorkerKey) -> bool {
        let session = self.get(who.incarnation);
        let registration = |session: &Session| *session.registration.get_or_init(|| who.registration);
        session.is_some_and(|session| registration(&session) != who.registration)
    }

    pub(super) fn close(&self, worker: Incarnation) {
        let closed = lock(&self.live).remove(&worker);
        if let Some(session) = closed {
            session.wake.notify_waiters();
        }
    }

    /// Closes the session of a worker that the core has given up, and says so.
    pub(super) fn drop_worker(&self, worker: Incarnation, reason: &str) {
        let about = self.get(worker).map(|session| session.about.clone()).unwrap_or_default();
        warn!(%worker, name = about.name, host = about.host, reason, "worker dropped");
        self.close(worker);
    }

    /// The same of one of which the core still has to hear, see [`Self::forget`].
    pub(super) fn drop_before_core(&self, worker: Incarnation, reason: &str) {
        if let Some(session) = self.get(worker) {
            lock(&self.over).insert(worker, session);
        }
        self.drop_worker(worker, reason);
    }

    /// The core hears that a worker is gone: the attempts that it was to begin and was never told of.
    pub(super) fn forget(&self, worker: Incarnation) -> Vec<Attempts> {
        let session = lock(&self.over).remove(&worker);
        session.map(|session| lock(&session.orders).close()).unwrap_or_default()
    }

    pub(super) fn get(&self, worker: Incarnation) -> Option<Arc<Session>> {
        lock(&self.live).get(&worker).cloned()
    }

    fn entries(&self) -> BTreeMap<Incarnation, Arc<Session>> {
        lock(&self.live).clone()
    }

    /// Notes a sign of life; `false` if the worker is not known.
    pub(super) fn touch(&self, worker: Incarnation) -> bool {
        let Some(session) = self.get(worker) else { return false };
        *lock(&session.seen) = Some(Instant::now());
        true
    }

    /// Does not count `late` as silence: this process was not awake in that time.
    pub(super) fn extend_deadlines(&self, late: Duration) {
        let now = Instant::now();
        for (_, session) in self.entries() {
            if let Some(at) = &mut *lock(&session.seen) {
                *at = (*at + late).min(now.max(*at));
            }
        }
    }

    /// Waits until no other reports of this worker are on their way.
    pub(super) async fn lock_reports(&self, worker: Incarnation) -> Option<OwnedMutexGuard<()>> {
        let session = self.get(worker)?;
        Some(session.reporting.clone().lock_owned().await)
    }

    /// Notes the connection on which a live worker calls; `false` if it has called on a later one: this call
    /// was late, and that connection may end at any moment.
    pub(super) fn set_connection(&self, worker: Incarnation, connection: u64) -> bool {
        self.get(worker)
            .is_some_and(|session| session.connection.fetch_max(connection, Ordering::Relaxed) <= connection)
    }

    /// Workers of the engine before that have not called this one.
    pub(super) fn unheard(&self) -> Vec<(Incarnation, WorkerInfo)> {
        let unheard = |session: &Session| session.connection.load(Ordering::Relaxed) == 0;
        let sessions = lock(&self.live);
        let of = sessions.iter().filter(|(_, session)| unheard(session));
        of.map(|(worker, session)| (*worker, session.about.clone())).collect()
    }

    /// The newest connection of a live worker.
    pub(super) fn connection(&self, worker: Incarnation) -> Option<u64> {
        Some(self.get(worker)?.connection.load(Ordering::Relaxed))
    }

    pub(super) fn assign(&self, worker: Incarnation, assignment: Assignment) {
        let Some(session) = self.get(worker) else { return };
        lock(&session.outbox).push(assignment);
        session.wake.notify_one();
    }

    /// The worker's report is committed. The worker learns it from the answer to the report, not from a poll.
    pub(super) fn settle(&self, worker: Incarnation, key: &TaskKey) {
        if let Some(session) = self.get(worker) {
            lock(&session.outbox).remove(key);
        }
    }

    pub(super) fn revoke(&self, worker: Incarnation, key: &TaskKey) {
        self.settle(worker, key);
        if let Some(session) = self.get(worker) {
            session.wake.notify_one();
        }
    }

    /// Tells a worker of general tasks.
    pub(super) fn order(&self, worker: Incarnation, orders: Vec<Order>) {
        let over = || lock(&self.over).get(&worker).cloned();
        let Some(session) = self.get(worker).or_else(over) else { return };
        let mut log = lock(&session.orders);
        orders.into_iter().for_each(|order| log.push(order));
        drop(log);
        session.wake.notify_one();
    }

    /// Every worker was told what jobs in Redis say that it has.
    pub(super) fn mark_retold(&self) {
        self.entries().values().for_each(|session| lock(&session.orders).mark_retold());
    }

    /// A worker tells which of its calls run.
    pub(super) fn set_calls(&self, worker: Incarnation, calls: Vec<RunningCall>, now_ms: u64) {
        if let Some(session) = self.get(worker) {
            *lock(&session.calls) = (now_ms, calls.into());
        }
    }

    /// What each worker has told of its calls.
    pub(super) fn calls(&self) -> Vec<(Incarnation, ToldCalls)> {
        let told = |session: &Session| lock(&session.calls).clone();
        self.entries().into_iter().map(|(worker, session)| (worker, told(&session))).collect()
    }

    /// How many functions that were told to stop have not returned, and what some are called, of each worker
    /// with such.
    pub(super) fn stopping(&self) -> BTreeMap<Incarnation, (u32, Vec<Name>)> {
        let of = |worker: Incarnation, session: &Session| {
            let activity = lock(&session.activity);
            (activity.stopping > 0)
                .then(|| (worker, (activity.stopping, activity.stopping_functions.clone())))
        };
        self.entries().into_iter().filter_map(|(worker, session)| of(worker, &session)).collect()
    }

    /// All, where one of them does not reach some shard: hardly ever.
    pub(super) fn all_if_cut_off(&self) -> Vec<WorkerStatus> {
        let is_cut_off = |session: &Arc<Session>| !lock(&session.activity).unreached.is_empty();
        if self.entries().values().any(is_cut_off) { self.all() } else { Vec::new() }
    }

    pub(super) fn all(&self) -> Vec<WorkerStatus> {
        let now = Instant::now();
        let seen = |worker: Incarnation, s: &Session| WorkerStatus {
            worker,
            about: s.about.clone(),
            silent_for: lock(&s.seen).map_or(Duration::ZERO, |at| now.saturating_duration_since(at)),
            activity: lock(&s.activity).clone(),
            is_busy: lock(&s.outbox).iter().any(|given| !matches!(given.key.task, TaskId::Prepare(_))),
        };
        self.entries().into_iter().map(|(worker, session)| seen(worker, &session)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_to_two_is_that_of_the_one_that_is_known_and_of_a_record_of_before_the_firsts()
    {
        let who = |drawn| WorkerKey { incarnation: WORKER, registration: RegistrationId(drawn) };
        let about = |drawn: Option<u64>| WorkerInfo {
            registration: drawn.map(RegistrationId),
            ..WorkerInfo::default()
        };
        let sessions = Sessions::default();
        assert!(!sessions.is_superseded(who(1)), "nobody has it yet");
        sessions.register(WORKER, about(Some(2)));
        assert_eq!([1, 2].map(|drawn| sessions.is_superseded(who(drawn))), [true, false]);
        sessions.restore(WORKER, about(Some(3)));
        assert_eq!([2, 3].map(|drawn| sessions.is_superseded(who(drawn))), [true, false]);
        sessions.restore(WORKER, about(None));
        assert_eq!([1, 2, 1].map(|drawn| sessions.is_superseded(who(drawn))), [false, true, false]);
    }

    #[test]
    fn a_worker_of_another_engine_has_time_to_find_this_one() {
        let sessions = Sessions::default();
        sessions.restore(WORKER, WorkerInfo::default());
        sessions.extend_deadlines(Duration::from_secs(1));
        let ahead = |sessions: &Sessions| lock(&sessions.get(WORKER).unwrap().seen).unwrap();
        assert!(ahead(&sessions) > Instant::now() + RESTORED_PATIENCE / 2);
        assert_eq!(sessions.all()[0].silent_for, Duration::ZERO);
        assert!(sessions.touch(WORKER));
        assert!(ahead(&sessions) <= Instant::now(), "once it is heard of it is one like the others");
    }

    const WORKER: Incarnation = Incarnation(1);

    #[test]
    fn the_time_in_which_the_engine_slept_does_not_count_as_silence() {
        let sessions = Sessions::default();
        sessions.register(WORKER, WorkerInfo::default());
        let silent_for = || sessions.all()[0].silent_for;
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        *lock(&sessions.get(WORKER).unwrap().seen) = Some(long_ago);
        assert!(silent_for() >= Duration::from_secs(60));
        sessions.extend_deadlines(Duration::from_secs(40));
        assert!(silent_for() >= Duration::from_secs(20) && silent_for() < Duration::from_secs(60));
        sessions.extend_deadlines(Duration::from_secs(600));
        assert!(silent_for() < Duration::from_secs(20), "never later than now");
    }

    #[test]
    fn a_call_that_comes_late_on_an_old_connection_does_not_bring_that_one_back() {
        let sessions = Sessions::default();
        assert!(!sessions.set_connection(WORKER, 1), "nobody has this number");
        sessions.register(WORKER, WorkerInfo::default());
        assert_eq!(sessions.unheard(), [(WORKER, WorkerInfo::default())]);
        assert!(sessions.set_connection(WORKER, 1) && sessions.set_connection(WORKER, 2));
        assert_eq!(sessions.unheard(), []);
        assert!(sessions.set_connection(WORKER, 2) && !sessions.set_connection(WORKER, 1));
        assert_eq!(sessions.connection(WORKER), Some(2));
    }

    #[tokio::test]
    async fn reports_of_one_worker_are_taken_one_after_the_other() {
        let sessions = Sessions::default();
        sessions.register(WORKER, WorkerInfo::default());
        let first = sessions.lock_reports(WORKER).await.unwrap();
        let mut second = std::pin::pin!(sessions.lock_reports(WORKER));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(second.await.is_some());
        assert!(sessions.lock_reports(Incarnation(9)).await.is_none());
    }
}
