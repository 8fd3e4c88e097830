//! What the control side and the executor of a worker see of each other: tasks that are given, revoked, and
//! in hand.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use syncline_ps::client::{Addresses, CancelToken};
use syncline_rpc::threads::lock;
use syncline_scheduler::core::TaskKey;
use tokio::{sync::Notify, time::sleep};

use super::task_timer::TaskTimer;

/// How often a question to the engine checks whether its answer is still wanted.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Which task is queued and which one runs, and what both sides of a worker tell each other of it.
#[derive(Default)]
pub(super) struct TaskTracker {
    /// Tasks that were given and not begun, and whether they were revoked since.
    queued: Mutex<HashMap<TaskKey, bool>>,
    /// The task that is being executed.
    running: Mutex<Option<Running>>,
    pub timer: TaskTimer,
    /// A report is there that must not wait for others.
    urgent: Notify,
    blocked_on: Mutex<Option<String>>,
    /// Where the shards are, as the engine said last, and which of them are not reached.
    pub shards: Addresses,
    /// Ends the calls of the job that is open, or that opens.
    cancel_token: Mutex<CancelToken>,
    /// No further task begins: the worker is to stop. Written under the lock of `running`.
    closed: AtomicBool,
    /// This session is over.
    stopped: AtomicBool,
}

/// A task that is being executed.
struct Running {
    key: TaskKey,
    /// Its job may not have begun to open, and has no token of its own then.
    revoked: bool,
    /// It evaluates, and its job is open: it can be given up alone.
    evaluates: bool,
    /// It has all it needs to compute and push. A push that some shards have and others lack is torn: a stop
    /// lets it end.
    steps: bool,
}

impl TaskTracker {
    /// Of a session whose worker knows this of the shards, from the sessions before.
    pub(super) fn with_shards(shards: Addresses) -> Self {
        Self { shards, ..Self::default() }
    }

    /// Takes note of tasks that are over: one that has not begun never will, one that runs is given up. What
    /// is neither has been reported and is forgotten.
    pub(super) fn revoke(&self, keys: &[TaskKey]) {
        let mut queued = lock(&self.queued);
        for key in keys {
            if let Some(revoked) = queued.get_mut(key) {
                *revoked = true;
                continue;
            }
            // Under the lock, so that whoever ends the task sees it.
            let mut running = lock(&self.running);
            if let Some(running) = running.as_mut().filter(|running| running.key == *key) {
                running.revoked = true;
                let token = lock(&self.cancel_token);
                match running.evaluates {
                    true => token.interrupt(),
                    false => token.cancel(),
                }
            }
        }
    }

    /// Notes a task that is given to the executor.
    pub(super) fn queue(&self, key: &TaskKey) {
        lock(&self.queued).insert(key.clone(), false);
    }

    /// The executor has this task in hand. Whether it was revoked, or comes too late, and how many are still
    /// to do.
    pub(super) fn begin(&self, key: &TaskKey) -> (bool, u32) {
        let mut queued = lock(&self.queued);
        let revoked = queued.remove(key).unwrap_or(false);
        // Under the lock of the queue, so that a revocation finds it in one place or the other.
        let mut running = lock(&self.running);
        let is_over = revoked || self.closed.load(Ordering::SeqCst);
        let begun = || Running { key: key.clone(), revoked: false, evaluates: false, steps: false };
        *running = (!is_over).then(begun);
        (is_over, queued.len() as u32)
    }

    /// The task in hand computes and pushes from here on; `false` if the worker is to stop, and it must not.
    pub(super) fn begin_step(&self) -> bool {
        let mut running = lock(&self.running);
        let goes_on = !self.closed.load(Ordering::SeqCst);
        if let Some(running) = running.as_mut() {
            running.steps = goes_on;
        }
        goes_on
    }

    /// Lets nothing begin any more: a step that computes or pushes ends by itself, what is on its way to one
    /// ends at once.
    pub(super) fn close(&self) {
        let running = lock(&self.running);
        self.closed.store(true, Ordering::SeqCst);
        if !running.as_ref().is_some_and(|running| running.steps) {
            lock(&self.cancel_token).cancel();
        }
    }

    /// The task in hand evaluates from here on. What its job has learned locally outlives a revocation: its
    /// calls are interrupted then, not ended for good, and between batches it looks for one itself.
    pub(super) fn begin_evaluation(&self) {
        if let Some(running) = lock(&self.running).as_mut() {
            running.evaluates = true;
        }
    }

    /// Whether the task in hand was revoked.
    pub(super) fn is_revoked(&self) -> bool {
        lock(&self.running).as_ref().is_some_and(|running| running.revoked)
    }

    /// The executor has done with the task in hand. Whether it was revoked meanwhile: what its job calls by
    /// then is ended for good.
    pub(super) fn end(&self) -> bool {
        *lock(&self.running) = None;
        let token = lock(&self.cancel_token);
        token.resume();
        token.is_canceled()
    }

    /// Waits until a report is there that must not wait for others.
    pub(super) async fn urgent(&self) {
        self.urgent.notified().await;
    }

    /// Says that such a report is there.
    pub(super) fn notify_urgent(&self) {
        self.urgent.notify_one();
    }

    /// What the task in hand may wait for from here on, as people are told.
    pub(super) fn set_blocked_on(&self, what: Option<String>) {
        *lock(&self.blocked_on) = what;
    }

    pub(super) fn blocked_on(&self) -> Option<String> {
        // What was tried last says nothing about a worker that tries nothing.
        if lock(&self.running).is_none() {
            return None;
        }
        self.shards.unreachable().or_else(|| lock(&self.blocked_on).clone())
    }

    /// Whether the executor has done all that it was given.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let queued = lock(&self.queued);
        queued.is_empty() && lock(&self.running).is_none()
    }

    /// What the executor has in hand, for people.
    pub(super) fn running(&self) -> Option<String> {
        let running = lock(&self.running);
        running.as_ref().map(|Running { key, .. }| format!("{} of job {}", key.task, key.run.job))
    }

    /// Ends whatever the executor is blocked in, for good.
    pub(super) fn cancel(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        lock(&self.cancel_token).cancel();
    }

    /// Gives a job that opens what its calls can be ended with.
    pub(super) fn begin_job(&self) -> CancelToken {
        let fresh = CancelToken::default();
        // A revocation that came since the task was begun has ended the token of the job before.
        let running = lock(&self.running);
        *lock(&self.cancel_token) = fresh.clone();
        let is_over = self.is_stopped() || self.closed.load(Ordering::SeqCst);
        if is_over || running.as_ref().is_some_and(|running| running.revoked) {
            fresh.cancel();
        }
        fresh
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns when the job that opens is given up.
    pub(super) async fn canceled(&self) {
        while !lock(&self.cancel_token).is_canceled() {
            sleep(CANCEL_POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::key, *};

    #[test]
    fn a_revocation_is_remembered_only_until_its_task_is_in_hand() {
        let tracker = TaskTracker::default();
        let cancel_token = tracker.begin_job();
        let keys: Vec<TaskKey> = (1..=1000).map(key).collect();
        for begun in &keys {
            tracker.queue(begun);
            assert_eq!(tracker.begin(begun), (false, 0));
            *lock(&tracker.running) = None;
            // The engine says so of every task that was reported meanwhile.
            tracker.revoke(&keys);
        }
        assert!(lock(&tracker.queued).is_empty() && !cancel_token.is_canceled());
        tracker.queue(&keys[0]);
        tracker.queue(&keys[1]);
        tracker.revoke(&keys[1..]);
        assert_eq!((tracker.begin(&keys[0]), tracker.begin(&keys[1])), ((false, 1), (true, 0)));
        assert!(!cancel_token.is_canceled(), "one that never began interrupts nobody");
    }

    #[test]
    fn a_task_that_runs_is_given_up_when_it_is_revoked_and_the_next_job_is_not() {
        let tracker = TaskTracker::default();
        let (first, task) = (tracker.begin_job(), key(1));
        tracker.queue(&task);
        tracker.begin(&task);
        tracker.revoke(&[task]);
        assert!(first.is_canceled() && !tracker.is_stopped());
        assert!(tracker.begin_job().is_canceled(), "its job had not begun to open");
        tracker.end();
        tracker.queue(&key(2));
        tracker.begin(&key(2));
        assert!(!tracker.begin_job().is_canceled());
        tracker.cancel();
        assert!(tracker.begin_job().is_canceled(), "a job that opens behind a stop");
    }

    #[test]
    fn a_stop_lets_a_step_end_and_ends_what_is_on_its_way_to_one_and_nothing_begins_behind_it() {
        for steps in [true, false] {
            let (tracker, task) = (TaskTracker::default(), key(1));
            tracker.begin(&task);
            let job = tracker.begin_job();
            assert!(!steps || tracker.begin_step());
            tracker.close();
            assert_eq!(job.is_canceled(), !steps, "steps: {steps}");
            assert!(!tracker.begin_step() && !tracker.is_stopped());
            tracker.end();
            assert_eq!(tracker.begin(&key(2)), (true, 0));
            assert!(tracker.begin_job().is_canceled());
        }
    }

    /// Workers keep the state of their own optimizers with an open job.
    #[test]
    fn an_evaluation_that_is_revoked_is_given_up_alone() {
        let tracker = TaskTracker::default();
        let (job, task) = (tracker.begin_job(), key(1));
        tracker.queue(&task);
        tracker.begin(&task);
        tracker.begin_evaluation();
        tracker.revoke(&[task]);
        assert!(tracker.is_revoked() && job.is_canceled(), "a call that waits for a shard ends");
        assert!(!tracker.end() && !job.is_canceled(), "the job goes on");
        tracker.queue(&key(2));
        tracker.begin(&key(2));
        assert!(!tracker.is_revoked());
    }
}
