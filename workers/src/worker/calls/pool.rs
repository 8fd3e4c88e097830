//! What the threads of a worker share with the side that talks to the engine.
//!
//! One lock holds everything. A thread takes it once per task: to say how the last one ended, and to get the
//! next; once more where its arguments are fetched, or its function has a run limit.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use syncline_rpc::threads::{NoThread, lock};
use syncline_scheduler::{
    ids::{EngineEpoch, Name},
    tasks::{Attempts, Order, Outcome, RunningCall, TaskEnd},
};
use tokio::{
    sync::Notify,
    time::{sleep, sleep_until, timeout},
};
use tracing::warn;

use super::{
    attempt::{CallEnvironment, Ended},
    held::{Attempt, EndedKey, HeldTasks},
    reports::{Batch, Reports},
    retelling::Retelling,
    running::{GIVE_UP_AFTER, GivenUp, Returned, RunningTasks},
    threads,
};
use crate::functions::{Registry, StopFlag};

/// How often a pool that has ended checks whether its functions have returned.
const RETURN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Tasks that are held, those that run, and ends that are to be reported. Clones share them.
#[derive(Clone)]
pub(in crate::worker) struct Pool(Arc<Shared>);

struct Shared {
    registry: Registry,
    around: CallEnvironment,
    slots: u32,
    state: Mutex<State>,
    /// Something may begin, or the pool is closed.
    work: Condvar,
    /// The first of some ends is there to be reported.
    ended: Notify,
    /// A deadline came up that is earlier than all others.
    sooner: Notify,
    /// The pool is closed.
    closing: Notify,
}

#[derive(Default)]
struct State {
    held: HeldTasks,
    running: RunningTasks,
    reports: Reports,
    /// The engine that has told all that is held.
    under: EngineEpoch,
    /// Ends that were taken to be reported, and are not acknowledged.
    on_their_way: usize,
    free_slots: u32,
    /// Threads that wait for work, and how many of them were woken and have not come yet.
    idle: u32,
    woken: u32,
    /// Nothing begins any more.
    closed: bool,
    /// The function that keeps a slot for good.
    stuck: Option<String>,
}

/// What a thread does next.
pub(super) enum NextStep {
    Run(Attempt),
    End,
}

impl Pool {
    /// A pool with a thread for each slot. `given_up`: threads of the pools that this worker had before.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub(in crate::worker) fn start(
        registry: Registry,
        slots: u32,
        around: CallEnvironment,
        given_up: GivenUp,
    ) -> Result<Self, NoThread> {
        let running = RunningTasks::beside(given_up);
        let state = Mutex::new(State { free_slots: slots, running, ..State::default() });
        let (work, ended, sooner, closing) = Default::default();
        let pool = Self(Arc::new(Shared { registry, around, slots, state, work, ended, sooner, closing }));
        for _ in 0..slots {
            if let Err(error) = threads::start(pool.clone()) {
                pool.abandon();
                return Err(error);
            }
        }
        Ok(pool)
    }

    pub(super) fn around(&self) -> &CallEnvironment {
        &self.0.around
    }

    /// Takes orders. `whole`: everything that a new engine knows this worker to have, these orders included;
    /// what it holds besides is over.
    pub(in crate::worker) fn take(&self, orders: Vec<Order>, whole: Option<(EngineEpoch, Retelling)>) {
        if orders.is_empty() && whole.is_none() {
            return;
        }
        let mut state = self.lock();
        let (mut over, mut told, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        if let Some((engine, named)) = whole {
            let State { held, reports, under, .. } = &mut *state;
            held.retain(&named, &mut over);
            reports.retain(|ended| held.holds(ended));
            *under = engine;
        }
        for order in orders {
            match order {
                Order::Run(group) => {
                    let function = self.0.registry.get(&group.function).cloned();
                    state.held.accept(group, function, &mut over);
                }
                Order::Recall(recall) => state.held.recall(recall, &mut over),
                Order::Stop(stop) => {
                    let mut not_begun = Vec::new();
                    state.held.stop(stop, &mut told, &mut not_begun);
                    ended
                        .extend(not_begun.into_iter().map(|(key, attempt)| (key, attempt, Outcome::Stopped)));
                }
                Order::GiveBack(asked) => {
                    let mut not_begun = Vec::new();
                    // What runs goes on.
                    state.held.stop(asked, &mut Vec::new(), &mut not_begun);
                    ended.extend(
                        not_begun.into_iter().map(|(key, attempt)| (key, attempt, Outcome::GivenBack)),
                    );
                }
            }
        }
        let now = Instant::now();
        let mut sooner = false;
        for serial in over {
            sooner |= state.running.stop(serial, now);
        }
        if sooner {
            self.0.sooner.notify_one();
        }
        told.into_iter().for_each(|serial| state.running.tell(serial));
        for (key, attempt, outcome) in ended {
            let end = TaskEnd { task: key.task, attempt, run_us: 0, outcome, preview: None };
            if state.reports.push(key, end) {
                self.0.ended.notify_one();
            }
        }
        self.unlock_and_wake(state);
    }

    /// Functions that were told to stop and have not returned.
    pub(in crate::worker) fn stopping(&self) -> usize {
        self.lock().running.stopping()
    }

    /// Calls that run, as the engine is told.
    pub(in crate::worker) fn running(&self) -> Vec<RunningCall> {
        self.lock().running.told(Instant::now())
    }

    /// What some of these are called.
    pub(in crate::worker) fn stopping_functions(&self) -> Vec<Name> {
        self.lock().running.stopping_functions()
    }

    /// Tasks that were received and whose end is not acknowledged.
    pub(in crate::worker) fn count(&self) -> usize {
        self.lock().held.count()
    }

    /// A poll begins; its number.
    pub(in crate::worker) fn poll_begins(&self) -> u64 {
        self.lock().held.poll_begins()
    }

    /// A poll was answered, and its orders were taken.
    pub(in crate::worker) fn poll_answered(&self, poll: u64) {
        self.lock().held.poll_answered(poll);
    }

    /// Another engine leads, and has given no orders yet.
    pub(in crate::worker) fn engine_changed(&self) {
        self.lock().held.forget_acknowledged();
    }

    /// The first attempt for a thread; waits for one.
    pub(super) fn next(&self, stop: &Arc<StopFlag>) -> NextStep {
        self.begin(self.lock(), stop)
    }

    /// An attempt has ended; the next one for the same thread. `stop` is renewed if it was for that one.
    pub(super) fn end_and_next(&self, attempt: &Attempt, ended: Ended, stop: &mut Arc<StopFlag>) -> NextStep {
        let mut state = self.lock();
        match state.running.end(attempt.serial) {
            Returned::ToWork(slots) => state.free_slots += slots,
            Returned::Replaced => return NextStep::End,
        }
        if stop.is_asked() {
            *stop = Arc::default();
        }
        let (submission, order) = (attempt.group.submission.clone(), &attempt.order);
        let key = EndedKey { submission, task: order.task, serial: attempt.serial };
        let Ended { outcome, run_us, value, preview } = ended;
        let is_heard = match outcome {
            Outcome::NotBegun => state.held.end_unbegun(&key),
            _ => state.held.end(&key, value),
        };
        if is_heard {
            let (task, attempt) = (order.task, order.attempt);
            if state.reports.push(key, TaskEnd { task, attempt, run_us, outcome, preview }) {
                // Whoever is woken needs the lock.
                drop(state);
                self.0.ended.notify_one();
                state = self.lock();
            }
        }
        self.begin(state, stop)
    }

    fn begin(&self, mut state: MutexGuard<'_, State>, stop: &Arc<StopFlag>) -> NextStep {
        let slots = self.0.slots;
        loop {
            if state.closed {
                return NextStep::End;
            }
            let free = state.free_slots;
            if let Some(attempt) = state.held.begin(free, slots) {
                let taken = attempt.group.slots.clamp(1, slots);
                state.free_slots -= taken;
                state.running.begin(&attempt, taken, stop);
                // Whoever finds more than it can do wakes the next.
                self.unlock_and_wake(state);
                return NextStep::Run(attempt);
            }
            state.idle += 1;
            state = self.0.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.woken = state.woken.saturating_sub(1);
        }
    }

    /// The function of an attempt is to be called now. `false`: the pool was closed while its arguments were
    /// fetched, and it is not called any more, so that [`begun`](Self::begun) has said everything.
    pub(super) fn function_begins(&self, attempt: &Attempt) -> bool {
        let (fetches, is_limited) = (attempt.fetches(), attempt.group.run_limit_ms.is_some());
        if !fetches && !is_limited {
            return true;
        }
        let mut state = self.lock();
        if fetches && state.closed {
            return false;
        }
        state.held.function_begins(attempt);
        if is_limited && state.running.function_begins(attempt.serial, Instant::now()) {
            self.0.sooner.notify_one();
        }
        true
    }

    /// Wakes one idle thread if there may be something for it; it finds the lock free.
    fn unlock_and_wake(&self, mut state: MutexGuard<'_, State>) {
        if state.idle > state.woken && state.free_slots > 0 && state.held.has_ready() {
            state.woken += 1;
            drop(state);
            self.0.work.notify_one();
        }
    }

    /// The next ends to report; waits for some.
    pub(in crate::worker) async fn next_reports(&self) -> Batch {
        loop {
            if let Some(batch) = self.take_reports() {
                return batch;
            }
            self.0.ended.notified().await;
        }
    }

    fn take_reports(&self) -> Option<Batch> {
        let mut state = self.lock();
        let under = state.under;
        let batch = state.reports.take(under)?;
        state.on_their_way += batch.ended.len();
        Some(batch)
    }

    /// The engine has taken those ends.
    pub(in crate::worker) fn acknowledge(&self, batch: Batch) {
        let mut state = self.lock();
        state.on_their_way -= batch.ended.len();
        state.held.acknowledge(batch.ended);
    }

    /// Ends attempts that run for too long, and gives up threads that do not come back, as long as it is
    /// polled. Returns when so many are given up that a slot is lost for good: the engine counts it as
    /// free, and what it leases to this worker would wait forever.
    pub(in crate::worker) async fn enforce_limits(&self) {
        while self.stuck().is_none() {
            let earliest = self.lock().running.earliest();
            match earliest {
                None => self.0.sooner.notified().await,
                Some(at) => tokio::select! {
                    () = self.0.sooner.notified() => {}
                    () = sleep_until(at.into()) => self.expire(Instant::now(), threads::start),
                },
            }
        }
    }

    /// The function that keeps a slot for good.
    pub(in crate::worker) fn stuck(&self) -> Option<String> {
        self.lock().stuck.clone()
    }

    /// Looks at the deadlines. `start` starts one more thread of the pool.
    pub(super) fn expire(&self, now: Instant, start: impl Fn(Self) -> Result<(), NoThread>) {
        let mut state = self.lock();
        let expired = state.running.expire(now, self.0.slots);
        if expired.stuck.is_some() {
            state.stuck = expired.stuck;
        }
        for (key, end) in expired.failed {
            if state.held.end(&key, None) && state.reports.push(key, end) {
                self.0.ended.notify_one();
            }
        }
        for (serial, slots) in expired.given_up {
            match start(self.clone()) {
                Ok(()) => {
                    warn!("a function that was told to stop does not return: its thread is given up");
                    state.free_slots += slots;
                }
                Err(error) => {
                    warn!(%error, "a function that was told to stop does not return, and no thread takes its place yet");
                    state.running.not_replaced(serial, now);
                }
            }
        }
    }

    /// Begins nothing more. What runs may end and be reported; what still fetches its arguments, for minutes
    /// perhaps, is given back.
    pub(in crate::worker) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let fetching = state.held.fetching();
        fetching.into_iter().for_each(|serial| state.running.tell(serial));
        drop(state);
        self.0.work.notify_all();
        self.0.closing.notify_one();
    }

    /// What has begun, ended or not. Once this pool is closed it is all that ever did.
    pub(in crate::worker) fn begun(&self) -> Vec<Attempts> {
        self.lock().held.begun()
    }

    /// Whether nothing begins any more.
    pub(in crate::worker) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns once when the pool is closed.
    pub(in crate::worker) async fn closing(&self) {
        self.0.closing.notified().await;
    }

    /// Whether nothing runs and all that has ended is reported.
    pub(in crate::worker) fn is_done(&self) -> bool {
        let state = self.lock();
        state.running.is_empty() && state.reports.is_empty() && state.on_their_way == 0
    }

    /// Waits until what runs here has returned, after the end of this pool and before another one takes its
    /// place. What does not stop is given up, as where a task is, and counts as such in the next pool.
    pub(in crate::worker) async fn give_way(&self) {
        let returned = async {
            while !self.lock().running.have_returned() {
                sleep(RETURN_POLL_INTERVAL).await;
            }
        };
        if timeout(GIVE_UP_AFTER, returned).await.is_err() {
            self.lock().running.give_up_all();
        }
    }

    /// Begins nothing more, forgets everything, and tells what runs to stop.
    pub(in crate::worker) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.held.clear();
        state.running.stop_all();
        self.0.work.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}
