//! What a poll of a worker is answered with, and when.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use syncline_rpc::{Activity, Orders, threads::lock};
use syncline_scheduler::{
    core::{Assignment, TaskKey},
    ids::Incarnation,
};
use tokio::time::timeout_at;

use super::sessions::{Session, Sessions};

/// What a worker does not know yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PollUpdate {
    pub assignments: Vec<Assignment>,
    /// Tasks that it holds and that are over.
    pub revoked: Vec<TaskKey>,
    pub orders: Orders,
}

impl PollUpdate {
    fn of(session: &Session, holding: &HashSet<&TaskKey>) -> Self {
        let outbox = lock(&session.outbox);
        let assignments = outbox.iter().filter(|given| !holding.contains(&given.key)).cloned().collect();
        let revoked = holding.iter().filter(|key| !outbox.contains(key)).map(|key| (*key).clone()).collect();
        let orders = lock(&session.orders).answer();
        Self { assignments, revoked, orders }
    }

    fn is_empty(&self) -> bool {
        self.assignments.is_empty() && self.revoked.is_empty() && self.orders.orders.is_empty()
    }
}

impl Sessions {
    /// Waits until there is something the worker does not know; `None` if the worker is not known (any more).
    ///
    /// `known_orders`: how many of this engine's orders it knows; `None` if it has not heard of this engine.
    /// If it then holds general tasks, it is told at once which of them are still its own.
    pub(super) async fn poll(
        &self,
        worker: Incarnation,
        activity: Activity,
        known_orders: Option<u64>,
        wait: Duration,
    ) -> Option<PollUpdate> {
        let deadline = tokio::time::Instant::now() + wait;
        let at_once = known_orders.is_none() && activity.tasks > 0;
        let session = self.get(worker)?;
        let activity = Arc::new(activity);
        *lock(&session.activity) = Arc::clone(&activity);
        let holding = activity.holding.iter().collect();
        lock(&session.orders).acknowledge(known_orders.unwrap_or(0));
        drop(session);
        loop {
            let session = self.get(worker)?;
            *lock(&session.seen) = Some(Instant::now());
            let woken = session.wake.notified();
            let news = PollUpdate::of(&session, &holding);
            if at_once || !news.is_empty() {
                return Some(news);
            }
            if timeout_at(deadline, woken).await.is_err() {
                self.touch(worker);
                return Some(news);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        core::{EvaluationPart, Work, WorkerInfo},
        ids::{Generation, RunId, SubmissionId},
        tasks::{Attempt, Attempts, Order, TaskIndex},
    };

    use super::*;

    fn task(name: &str) -> Assignment {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        let key = TaskKey { run, task: name.parse().unwrap(), attempt: 0 };
        let work = Work::Evaluate { version: 1, part: EvaluationPart::WHOLE_TEST };
        Assignment { key, worker_number: 0, work }
    }

    fn holding(keys: &[&TaskKey]) -> Activity {
        Activity { holding: keys.iter().map(|key| (*key).clone()).collect(), ..Activity::default() }
    }

    fn recall(n: u32) -> Order {
        let submission = SubmissionId { job: "tasks".parse().unwrap(), nonce: 1 };
        Order::Recall(Attempts { submission, tasks: vec![Attempt { task: TaskIndex(n), attempt: 1 }] })
    }

    fn sessions() -> Sessions {
        let sessions = Sessions::default();
        for worker in [WORKER, OTHER] {
            sessions.register(worker, WorkerInfo::default());
        }
        sessions
    }

    const WORKER: Incarnation = Incarnation(1);
    const OTHER: Incarnation = Incarnation(2);
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_poll_without_news_ends_when_its_time_is_up() {
        let sessions = sessions();
        let (began, wait) = (Instant::now(), Duration::from_millis(20));
        let news = sessions.poll(WORKER, Activity::default(), Some(0), wait).await;
        assert_eq!(news, Some(PollUpdate::default()));
        assert!(began.elapsed() >= wait);
    }

    #[tokio::test]
    async fn a_waiting_poll_is_answered_by_an_assignment_a_revocation_and_the_end_of_the_session() {
        let sessions = sessions();
        let given = task("a");
        let poll = |activity| {
            let sessions = sessions.clone();
            async move { sessions.poll(WORKER, activity, Some(0), LONG).await }
        };
        let during = async |activity, event: &dyn Fn()| {
            let began = Instant::now();
            let (news, ()) = tokio::join!(poll(activity), async {
                tokio::task::yield_now().await;
                event();
            });
            assert!(began.elapsed() < LONG, "not by the end of its time");
            news
        };
        let assign = || sessions.assign(WORKER, given.clone());
        let assigned = PollUpdate { assignments: vec![given.clone()], ..PollUpdate::default() };
        assert_eq!(during(Activity::default(), &assign).await, Some(assigned));
        let revoke = || sessions.revoke(WORKER, &given.key);
        let held = holding(&[&given.key]);
        let revoked = PollUpdate { revoked: vec![given.key.clone()], ..PollUpdate::default() };
        assert_eq!(during(held, &revoke).await, Some(revoked));
        assert_eq!(during(Activity::default(), &|| sessions.close(WORKER)).await, None);
    }

    #[tokio::test]
    async fn a_worker_that_reconnects_gets_what_it_does_not_hold_and_nothing_twice() {
        let sessions = sessions();
        let (a, b) = (task("a"), task("b"));
        for assignment in [&a, &b, &a] {
            sessions.assign(WORKER, assignment.clone());
        }
        // The answer to the first poll is lost with its connection.
        sessions.poll(WORKER, Activity::default(), Some(0), LONG).await.unwrap();
        let again = sessions.poll(WORKER, holding(&[&a.key]), Some(0), LONG).await;
        assert_eq!(again, Some(PollUpdate { assignments: vec![b.clone()], ..PollUpdate::default() }));
        sessions.settle(WORKER, &a.key);
        let over = sessions.poll(WORKER, holding(&[&a.key, &b.key]), Some(0), LONG).await;
        assert_eq!(over, Some(PollUpdate { revoked: vec![a.key], ..PollUpdate::default() }));
    }

    #[tokio::test]
    async fn an_order_wakes_the_poll_of_its_worker_and_of_no_other() {
        let sessions = sessions();
        let mut other = std::pin::pin!(sessions.poll(OTHER, Activity::default(), Some(0), LONG));
        assert!(futures::poll!(other.as_mut()).is_pending());
        let (news, ()) = tokio::join!(sessions.poll(WORKER, Activity::default(), Some(0), LONG), async {
            tokio::task::yield_now().await;
            sessions.order(WORKER, vec![recall(0), recall(1)]);
        });
        let orders = Orders { first: 0, count: 2, retold: 0, orders: vec![recall(0), recall(1)] };
        let told = PollUpdate { orders, ..PollUpdate::default() };
        assert_eq!(news, Some(told));
        assert!(futures::poll!(other.as_mut()).is_pending());
        sessions.order(Incarnation(9), vec![recall(2)]);
    }

    #[tokio::test]
    async fn orders_come_together_with_assignments_and_again_until_they_are_known() {
        let sessions = sessions();
        let given = task("a");
        sessions.order(WORKER, vec![recall(0), recall(1)]);
        sessions.assign(WORKER, given.clone());
        // The answer to the first poll is lost.
        for _ in 0..2 {
            let news = sessions.poll(WORKER, Activity::default(), Some(0), LONG).await.unwrap();
            assert_eq!((news.assignments, news.orders.orders.len()), (vec![given.clone()], 2));
        }
        let news = sessions.poll(WORKER, holding(&[&given.key]), Some(1), LONG).await.unwrap();
        assert_eq!((news.orders.first, news.orders.orders), (1, vec![recall(1)]));
        let known = sessions.poll(WORKER, holding(&[&given.key]), Some(2), Duration::ZERO).await.unwrap();
        let nothing = Orders { first: 2, count: 2, retold: 0, orders: Vec::new() };
        assert_eq!(known, PollUpdate { orders: nothing, ..PollUpdate::default() });
    }

    #[tokio::test]
    async fn a_worker_that_holds_tasks_of_the_engine_before_learns_at_once_which_it_has() {
        let sessions = sessions();
        let busy = Activity { tasks: 3, ..Activity::default() };
        let news = sessions.poll(WORKER, busy.clone(), None, LONG).await;
        assert_eq!(news, Some(PollUpdate::default()), "none of them");
        let mut idle = std::pin::pin!(sessions.poll(WORKER, Activity::default(), None, LONG));
        assert!(futures::poll!(idle.as_mut()).is_pending(), "it has nothing to lose");
        sessions.order(WORKER, vec![recall(0)]);
        assert_eq!(idle.await.unwrap().orders.orders, [recall(0)]);
        assert_eq!(sessions.poll(WORKER, busy, None, LONG).await.unwrap().orders.orders, [recall(0)]);
    }
}
