//! Attempts that run, and until when they may.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use syncline_rpc::{MAX_RUNNING_TOLD, MAX_STOPPING_NAMED};
use syncline_scheduler::{
    ids::{Name, SubmissionId},
    tasks::{RunningCall, TaskEnd},
};

use super::held::{Attempt, EndedKey, Group, OrderId};
use crate::functions::{CallFault, ProgressCell, StopFlag, Urgency};

/// A function that was told to stop gets this long before its thread is given up.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(1);

/// As often it gets as long again where the threads of as many others are given up as there may be.
pub(super) const MORE_CHANCES: u32 = 10;
/// All of that together.
pub(in crate::worker) const STUCK_AFTER: Duration =
    Duration::from_secs(GIVE_UP_AFTER.as_secs() * (1 + MORE_CHANCES as u64));

/// How many threads there are whose place others have taken and whose function has not returned. Clones share
/// it: a worker has a pool for each of its sessions, one after the other, and what runs of one may still run
/// in the next.
#[derive(Debug, Clone, Default)]
pub(in crate::worker) struct GivenUp(Arc<AtomicU32>);

impl GivenUp {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn end_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Attempts that run, each on a thread.
#[derive(Debug, Default)]
pub(super) struct RunningTasks {
    running: HashMap<OrderId, Running>,
    given_up: GivenUp,
    /// No deadline is earlier. It may be over, if what it belonged to has ended.
    earliest: Option<Instant>,
}

#[derive(Debug)]
struct Running {
    group: Arc<Group>,
    end: EndedKey,
    attempt: u16,
    began: Instant,
    progress: Arc<ProgressCell>,
    stop: Arc<StopFlag>,
    slots: u32,
    limit: Option<Limit>,
    /// Another thread has taken the place of the one that it runs on.
    replaced: bool,
    /// How often its thread would have been given up.
    chances: u32,
}

/// What happens when.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// It has run for too long then, and is told to stop.
    Tell(Instant),
    /// It was told to stop; its thread is given up then.
    GiveUp(Instant),
}

impl Limit {
    fn at(self) -> Instant {
        match self {
            Self::Tell(at) | Self::GiveUp(at) => at,
        }
    }
}

/// How a thread stands when its function has returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// It has these slots to give back.
    ToWork(u32),
    /// Another has taken its place.
    Replaced,
}

/// What deadlines have brought.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// Attempts that have run for too long, and how that is reported.
    pub failed: Vec<(EndedKey, TaskEnd)>,
    /// What runs on threads that were given up, each of which needs another in its place, and the slots that
    /// it has then.
    pub given_up: Vec<(OrderId, u32)>,
    /// The function of one that keeps its slots for good, as nothing more can be given up.
    pub stuck: Option<String>,
}

impl RunningTasks {
    /// None, of a worker of which these threads were given up.
    pub(super) fn beside(given_up: GivenUp) -> Self {
        Self { given_up, ..Self::default() }
    }

    /// An attempt begins, with fetching what its function is called with.
    pub(super) fn begin(&mut self, attempt: &Attempt, slots: u32, stop: &Arc<StopFlag>) {
        let (group, order, serial) = (attempt.group.clone(), &attempt.order, attempt.serial);
        let began = Instant::now();
        let progress = attempt.progress.clone();
        let end = EndedKey { submission: group.submission.clone(), task: order.task, serial };
        let (attempt, stop, limit) = (order.attempt, stop.clone(), None);
        let (replaced, chances) = (false, 0);
        let running = Running { group, end, attempt, began, progress, stop, slots, limit, replaced, chances };
        self.running.insert(serial, running);
    }

    /// Its function is called: its run limit counts from now on, unless it was told to stop by then. For how
    /// long its arguments were fetched says nothing of the function. `true` if its deadline is earlier
    /// than all others.
    pub(super) fn function_begins(&mut self, serial: OrderId, now: Instant) -> bool {
        let Some(running) = self.running.get_mut(&serial).filter(|running| !running.stop.is_asked()) else {
            return false;
        };
        // A limit that reaches beyond what the clock can count is none.
        let limit = running.group.run_limit_ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)));
        running.limit = limit.map(Limit::Tell);
        limit.is_some_and(|at| self.expect(at))
    }

    /// Its function has returned, or it was given up in the meantime.
    pub(super) fn end(&mut self, serial: OrderId) -> Returned {
        match self.running.remove(&serial) {
            Some(Running { replaced: false, slots, .. }) => Returned::ToWork(slots),
            _ => {
                self.given_up.end_one();
                Returned::Replaced
            }
        }
    }

    /// Its job is to end: it is told to stop, and has as long as the engine gives it.
    pub(super) fn tell(&mut self, serial: OrderId) {
        if let Some(running) = self.running.get(&serial) {
            running.stop.ask(Urgency::Soon);
        }
    }

    /// All of them, as the engine is told.
    pub(super) fn told(&self, now: Instant) -> Vec<RunningCall> {
        let told = |running: &Running| RunningCall {
            submission: SubmissionId::clone(&running.group.submission),
            task: running.end.task,
            attempt: running.attempt,
            running_ms: now.saturating_duration_since(running.began).as_millis() as u64,
            progress: running.progress.get(),
        };
        self.running.values().take(MAX_RUNNING_TOLD).map(told).collect()
    }

    /// Functions that were told to stop and have not returned, those included whose place others have taken.
    pub(super) fn stopping(&self) -> usize {
        self.running.values().filter(|running| running.stop.is_asked()).count()
    }

    /// What some of these are called, each name once.
    pub(super) fn stopping_functions(&self) -> Vec<Name> {
        let asked = self.running.values().filter(|running| running.stop.is_asked());
        let names: BTreeSet<Name> = asked.map(|running| running.group.id.name.clone()).collect();
        names.into_iter().take(MAX_STOPPING_NAMED).collect()
    }

    /// Nobody wants it any more: it is told to stop. `true` if a deadline came up that is earlier than all
    /// others.
    pub(super) fn stop(&mut self, serial: OrderId, now: Instant) -> bool {
        let Some(running) = self.running.get_mut(&serial) else { return false };
        running.stop.ask(Urgency::Now);
        let at = now + GIVE_UP_AFTER;
        running.limit = Some(Limit::GiveUp(at));
        self.expect(at)
    }

    /// Tells all to stop.
    pub(super) fn stop_all(&mut self) {
        for running in self.running.values_mut() {
            running.stop.ask(Urgency::Now);
            running.limit = None;
        }
    }

    /// Whether none runs on a thread that has its place.
    pub(super) fn have_returned(&self) -> bool {
        self.running.values().all(|running| running.replaced)
    }

    /// The places of all go to the threads of another pool.
    pub(super) fn give_up_all(&mut self) {
        for running in self.running.values_mut().filter(|running| !running.replaced) {
            running.replaced = true;
            self.given_up.add_one();
        }
    }

    /// Whether none runs that anybody waits for.
    pub(super) fn is_empty(&self) -> bool {
        self.running.values().all(|running| running.stop.is_asked())
    }

    /// When to look at the deadlines.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Notes a deadline; `true` if it is earlier than all others.
    fn expect(&mut self, at: Instant) -> bool {
        let sooner = self.earliest.is_none_or(|earliest| at < earliest);
        if sooner {
            self.earliest = Some(at);
        }
        sooner
    }

    /// Looks at the deadlines. At most `most` threads are given up at a time.
    pub(super) fn expire(&mut self, now: Instant, most: u32) -> Expired {
        let mut expired = Expired::default();
        for (serial, running) in &mut self.running {
            match running.limit {
                Some(Limit::Tell(at)) if at <= now => {
                    running.stop.ask(Urgency::Now);
                    running.limit = Some(Limit::GiveUp(now + GIVE_UP_AFTER));
                    expired.failed.push((running.end.clone(), running.too_long()));
                }
                Some(Limit::GiveUp(at)) if at <= now => {
                    if self.given_up.count() < most {
                        self.given_up.add_one();
                        running.replaced = true;
                        running.limit = None;
                        expired.given_up.push((*serial, running.slots));
                    } else {
                        running.limit = Some(Limit::GiveUp(now + GIVE_UP_AFTER));
                        running.chances += 1;
                        if running.chances == MORE_CHANCES {
                            expired.stuck = Some(running.group.id.name.to_string());
                        }
                    }
                }
                _ => {}
            }
        }
        self.earliest = self.running.values().filter_map(|running| running.limit.map(Limit::at)).min();
        expired
    }

    /// No thread could take the place of the one that this runs on: it keeps its place if the function
    /// returns, and is given up once more if it does not.
    pub(super) fn not_replaced(&mut self, serial: OrderId, now: Instant) {
        let Some(running) = self.running.get_mut(&serial).filter(|running| running.replaced) else { return };
        let at = now + GIVE_UP_AFTER;
        (running.replaced, running.limit) = (false, Some(Limit::GiveUp(at)));
        self.given_up.end_one();
        self.expect(at);
    }
}

impl Running {
    fn too_long(&self) -> TaskEnd {
        let limit_ms = self.group.run_limit_ms.unwrap_or_default();
        let fault = CallFault::TooLong { function: self.group.id.name.to_string(), limit_ms };
        let run_us = limit_ms.saturating_mul(1_000);
        let outcome = fault.into();
        TaskEnd { task: self.end.task, attempt: self.attempt, run_us, outcome, preview: None }
    }
}
