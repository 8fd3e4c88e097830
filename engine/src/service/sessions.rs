//! Live workers: their assignments, what they hold, and the time of their last sign of life.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dashmap::DashMap;
use syncline_scheduler::{
    core::{Assignment, TaskKey, WorkerInfo},
    ids::{EngineEpoch, Incarnation},
};
use tokio::sync::{Notify, OwnedMutexGuard};
use tracing::warn;

use crate::rpc::{Activity, WorkerKey};

/// One live worker.
#[derive(Default)]
struct Session {
    about: WorkerInfo,
    /// The engine that gave it its number; `None` if a job in Redis named it, behind which the numbers go on.
    since: Option<EngineEpoch>,
    /// Committed assignments whose report is not committed yet, in order.
    outbox: Mutex<Vec<Assignment>>,
    seen: Mutex<Option<Instant>>,
    /// The connection of its last call: the end of an older one means nothing.
    connection: AtomicU64,
    activity: Mutex<Activity>,
    wake: Notify,
    /// Held while its reports are on their way to the loop: repeated ones wait instead of being queued twice.
    reporting: Arc<tokio::sync::Mutex<()>>,
}

/// A short lock whose holder never panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All live workers; clones share them. No guard of the map ever leaves a method.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<DashMap<Incarnation, Arc<Session>>>);

/// A live worker as it is shown to users.
pub(super) struct WorkerStatus {
    pub worker: Incarnation,
    pub about: WorkerInfo,
    pub silent_for: Duration,
    pub activity: Activity,
}

impl WorkerStatus {
    /// Its hash in Redis, see docs/redis-schema.md.
    pub(super) fn fields(self) -> Vec<(&'static str, String)> {
        vec![
            ("name", self.about.name),
            ("host", self.about.host),
            ("device", self.about.device),
            ("pid", self.about.pid.to_string()),
            ("holding", self.activity.holding.len().to_string()),
            ("blocked_on", self.activity.blocked_on.unwrap_or_default()),
            ("running_ms", self.activity.running_ms.to_string()),
            ("silent_ms", self.silent_for.as_millis().to_string()),
        ]
    }
}

impl Sessions {
    /// A worker that registered.
    pub(super) fn register(&self, who: WorkerKey, about: WorkerInfo) {
        self.insert(who.incarnation, about, Some(who.since));
    }

    /// A worker that a job in Redis names.
    pub(super) fn restore(&self, worker: Incarnation, about: WorkerInfo) {
        self.insert(worker, about, None);
    }

    fn insert(&self, worker: Incarnation, about: WorkerInfo, since: Option<EngineEpoch>) {
        let session = Session { about, since, seen: Mutex::new(Some(Instant::now())), ..Session::default() };
        self.0.insert(worker, Arc::new(session));
    }

    /// Whether the number was given to another worker since.
    pub(super) fn is_superseded(&self, who: WorkerKey) -> bool {
        let since = self.get(who.incarnation).and_then(|session| session.since);
        since.is_some_and(|since| since != who.since)
    }

    pub(super) fn close(&self, worker: Incarnation) {
        if let Some((_, session)) = self.0.remove(&worker) {
            session.wake.notify_waiters();
        }
    }

    /// Closes the session of a worker that is given up, and says so.
    pub(super) fn drop_worker(&self, worker: Incarnation, reason: &str) {
        let about = self.get(worker).map(|session| session.about.clone()).unwrap_or_default();
        warn!(%worker, name = about.name, host = about.host, reason, "worker dropped");
        self.close(worker);
    }

    fn get(&self, worker: Incarnation) -> Option<Arc<Session>> {
        self.0.get(&worker).map(|s| Arc::clone(&s))
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
        for session in self.0.iter() {
            if let Some(at) = &mut *lock(&session.seen) {
                *at = (*at + late).min(now);
            }
        }
    }

    /// Waits until no other reports of this worker are on their way.
    pub(super) async fn lock_reports(&self, worker: Incarnation) -> Option<OwnedMutexGuard<()>> {
        let session = self.get(worker)?;
        Some(session.reporting.clone().lock_owned().await)
    }

    /// Sets the connection of a worker's last call.
    pub(super) fn set_connection(&self, worker: Incarnation, connection: u64) {
        if let Some(session) = self.get(worker) {
            session.connection.store(connection, Ordering::Relaxed);
        }
    }

    /// The connection of a live worker's last call.
    pub(super) fn connection(&self, worker: Incarnation) -> Option<u64> {
        Some(self.get(worker)?.connection.load(Ordering::Relaxed))
    }

    pub(super) fn assign(&self, worker: Incarnation, assignment: Assignment) {
        let Some(session) = self.get(worker) else { return };
        let mut outbox = lock(&session.outbox);
        if outbox.iter().all(|a| a.key != assignment.key) {
            outbox.push(assignment);
        }
        drop(outbox);
        session.wake.notify_one();
    }

    /// The worker's report is committed. The worker learns it from the answer to the report, not from a poll.
    pub(super) fn settle(&self, worker: Incarnation, key: &TaskKey) {
        if let Some(session) = self.get(worker) {
            lock(&session.outbox).retain(|a| a.key != *key);
        }
    }

    pub(super) fn revoke(&self, worker: Incarnation, key: &TaskKey) {
        self.settle(worker, key);
        if let Some(session) = self.get(worker) {
            session.wake.notify_one();
        }
    }

    /// Waits until there is something the worker does not hold, or something it holds is over; `None` if the worker
    /// is not known (any more).
    pub(super) async fn next_orders(
        &self,
        worker: Incarnation,
        activity: Activity,
        wait: Duration,
    ) -> Option<(Vec<Assignment>, Vec<TaskKey>)> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let session = self.get(worker)?;
            *lock(&session.seen) = Some(Instant::now());
            let woken = session.wake.notified();
            let (new, over) = {
                let outbox = lock(&session.outbox);
                let new: Vec<_> =
                    outbox.iter().filter(|a| !activity.holding.contains(&a.key)).cloned().collect();
                let listed = |key: &TaskKey| outbox.iter().any(|a| a.key == *key);
                (new, activity.holding.iter().filter(|k| !listed(k)).cloned().collect::<Vec<_>>())
            };
            *lock(&session.activity) = activity.clone();
            if !new.is_empty() || !over.is_empty() {
                return Some((new, over));
            }
            if tokio::time::timeout_at(deadline, woken).await.is_err() {
                self.touch(worker);
                return Some((Vec::new(), Vec::new()));
            }
        }
    }

    pub(super) fn all(&self) -> Vec<WorkerStatus> {
        let now = Instant::now();
        let seen = |worker: Incarnation, s: &Session| WorkerStatus {
            worker,
            about: s.about.clone(),
            silent_for: lock(&s.seen).map_or(Duration::ZERO, |at| now.saturating_duration_since(at)),
            activity: lock(&s.activity).clone(),
        };
        self.0.iter().map(|entry| seen(*entry.key(), entry.value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{core::Work, ids::Generation};

    use super::*;

    fn who(incarnation: u64, since: u64) -> WorkerKey {
        WorkerKey { incarnation: Incarnation(incarnation), since: EngineEpoch(since) }
    }

    #[test]
    fn a_number_that_is_given_again_is_not_the_old_workers_any_more() {
        let sessions = Sessions::default();
        assert!(!sessions.is_superseded(who(101, 1)), "nobody has it yet");
        sessions.register(who(101, 2), WorkerInfo::default());
        assert!(sessions.is_superseded(who(101, 1)));
        assert!(!sessions.is_superseded(who(101, 2)));
    }

    #[test]
    fn a_worker_that_a_job_names_is_known_to_the_next_engine() {
        let sessions = Sessions::default();
        sessions.restore(Incarnation(7), WorkerInfo::default());
        assert!(!sessions.is_superseded(who(7, 1)));
    }

    fn task(name: &str) -> Assignment {
        let job = "digits".parse().unwrap();
        let key = TaskKey { job, generation: Generation(1), task: name.parse().unwrap(), attempt: 0 };
        Assignment { key, work: Work::Evaluate { version: 1 } }
    }

    fn holding(keys: &[&TaskKey]) -> Activity {
        Activity { holding: keys.iter().map(|key| (*key).clone()).collect(), ..Activity::default() }
    }

    const WORKER: Incarnation = Incarnation(1);
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_poll_without_news_ends_when_its_time_is_up() {
        let sessions = Sessions::default();
        sessions.register(who(1, 1), WorkerInfo::default());
        let (began, wait) = (Instant::now(), Duration::from_millis(20));
        let orders = sessions.next_orders(WORKER, Activity::default(), wait).await;
        assert_eq!(orders, Some((Vec::new(), Vec::new())));
        assert!(began.elapsed() >= wait);
    }

    #[tokio::test]
    async fn a_waiting_poll_is_answered_by_an_assignment_a_revocation_and_the_end_of_the_session() {
        let sessions = Sessions::default();
        sessions.register(who(1, 1), WorkerInfo::default());
        let given = task("a");
        let poll = |activity| {
            let sessions = sessions.clone();
            async move { sessions.next_orders(WORKER, activity, LONG).await }
        };
        let during = async |activity, event: &dyn Fn()| {
            let began = Instant::now();
            let (orders, ()) = tokio::join!(poll(activity), async {
                tokio::task::yield_now().await;
                event();
            });
            assert!(began.elapsed() < LONG, "not by the end of its time");
            orders
        };
        let assign = || sessions.assign(WORKER, given.clone());
        assert_eq!(during(Activity::default(), &assign).await, Some((vec![given.clone()], vec![])));
        let revoke = || sessions.revoke(WORKER, &given.key);
        let held = holding(&[&given.key]);
        assert_eq!(during(held, &revoke).await, Some((vec![], vec![given.key.clone()])));
        assert_eq!(during(Activity::default(), &|| sessions.close(WORKER)).await, None);
    }

    #[tokio::test]
    async fn a_worker_that_reconnects_gets_what_it_does_not_hold_and_nothing_twice() {
        let sessions = Sessions::default();
        sessions.register(who(1, 1), WorkerInfo::default());
        let (a, b) = (task("a"), task("b"));
        for assignment in [&a, &b, &a] {
            sessions.assign(WORKER, assignment.clone());
        }
        // The answer to the first poll is lost with its connection.
        sessions.next_orders(WORKER, Activity::default(), LONG).await.unwrap();
        let again = sessions.next_orders(WORKER, holding(&[&a.key]), LONG).await;
        assert_eq!(again, Some((vec![b.clone()], vec![])));
        sessions.settle(WORKER, &a.key);
        let over = sessions.next_orders(WORKER, holding(&[&a.key, &b.key]), LONG).await;
        assert_eq!(over, Some((vec![], vec![a.key])));
    }

    #[test]
    fn the_time_in_which_the_engine_slept_does_not_count_as_silence() {
        let sessions = Sessions::default();
        sessions.register(who(1, 1), WorkerInfo::default());
        let silent_for = || sessions.all()[0].silent_for;
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        *lock(&sessions.get(WORKER).unwrap().seen) = Some(long_ago);
        assert!(silent_for() >= Duration::from_secs(60));
        sessions.extend_deadlines(Duration::from_secs(40));
        assert!(silent_for() >= Duration::from_secs(20) && silent_for() < Duration::from_secs(60));
        sessions.extend_deadlines(Duration::from_secs(600));
        assert!(silent_for() < Duration::from_secs(20), "never later than now");
    }

    #[tokio::test]
    async fn reports_of_one_worker_are_taken_one_after_the_other() {
        let sessions = Sessions::default();
        sessions.register(who(1, 1), WorkerInfo::default());
        let first = sessions.lock_reports(WORKER).await.unwrap();
        let mut second = std::pin::pin!(sessions.lock_reports(WORKER));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(second.await.is_some());
        assert!(sessions.lock_reports(Incarnation(9)).await.is_none());
    }
}
