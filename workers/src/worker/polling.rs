//! The loop in which a worker asks for tasks. The ends of general tasks go along where they can, so that a
//! short task costs one call to the engine: its end goes one way, and what follows comes the other.

use std::{
    collections::HashSet,
    future::pending,
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use syncline_rpc::{
    Activity, CallError, EngineFault, MAX_TEXT_CHARS, MAX_UNREACHED_TOLD, OrderCursor, Orders, OutageLogger,
    PollReply, shortened, threads::lock, within,
};
use syncline_scheduler::{
    ids::EngineEpoch,
    tasks::{Order, RunningCall},
};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{
    calls::{Batch, Pool, Retelling},
    session::{
        CALL_TIMEOUT, ENGINE_AWAY_HINT, ErrorChain, Hangup, RETRY_DELAY, Session, TaskSender, away, away_hint,
    },
};

const POLL_WAIT_MS: u64 = 1_000;
/// Longest pause between two polls at which an engine fails.
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How often the engine is told of calls that run, where polls come more often.
const CALLS_INTERVAL: Duration = Duration::from_secs(1);
/// A worker that was just told to run something waits so long for the first end before it asks again.
const FIRST_END_WAIT: Duration = Duration::from_millis(1);

/// How far the polls of a session have come. Ends of general tasks are in one call at a time, and repeated
/// until they are acknowledged: so they come in order.
#[derive(Default)]
struct Polls<'a> {
    cursor: OrderCursor,
    /// What an engine that was not heard of before has said so far, until that is everything.
    retelling: Option<Retelling>,
    /// The last answer said that something is to be run.
    was_told_to_run: bool,
    /// When the engine was last told of calls that run.
    calls_told: Option<Instant>,
    /// Ends that go with the poll.
    carried: Option<Batch>,
    /// Ends that go in a call of their own, because they came up while a poll waited.
    beside: Option<ReportCall<'a>>,
}

/// A call that sends ends until they are acknowledged.
type ReportCall<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Session {
    /// Takes tasks from the engine; returns when the engine has dropped this incarnation, or every engine
    /// turns us away for good, which whoever registers again is told.
    pub(super) async fn poll(&self, executor: &TaskSender) {
        let mut outage = OutageLogger::default();
        let mut polls = Polls::default();
        let mut pause = RETRY_DELAY;
        loop {
            self.carry_ends(&mut polls).await;
            let number = self.calls.as_ref().map(Pool::poll_begins);
            let answer = self.ask(&mut polls).await;
            // At the same poll an engine with a bug would fail again and again.
            pause = match &answer {
                Some(Err(CallError::Panicked { .. })) => (pause * 2).min(LONGEST_RETRY_DELAY),
                _ => RETRY_DELAY,
            };
            let is_taken = match answer {
                None => continue,
                Some(Ok(Ok(news))) => {
                    outage.resolve("the engine is there");
                    // Where it is not current, a deposed engine answers that does not know it yet: not for
                    // long.
                    let is_current = self.is_current(news.epoch);
                    let is_taken = is_current && news.ends_taken;
                    if is_current && self.take(news, &mut polls, number, executor).await.is_err() {
                        return;
                    }
                    is_taken
                }
                Some(Ok(Err(EngineFault::Dropped))) => {
                    if !self.is_leaving() {
                        warn!(worker = %self.who.incarnation, "dropped by the engine");
                    }
                    return;
                }
                Some(Ok(Err(fault))) => {
                    outage.report(&away(self.link.addresses(), &fault), ENGINE_AWAY_HINT);
                    false
                }
                Some(Err(error)) => {
                    outage.report(&away(self.link.addresses(), &ErrorChain(&error)), away_hint(&error));
                    if matches!(error, CallError::Hello(_)) && !error.is_passing() && self.link.all_failed() {
                        return;
                    }
                    false
                }
            };
            if !is_taken {
                sleep(pause).await;
            }
        }
    }

    /// Lets ends that are there go with the next poll. What was told a moment ago may end in a moment, and is
    /// waited for.
    async fn carry_ends(&self, polls: &mut Polls<'_>) {
        let Some(pool) = &self.calls else { return };
        if polls.carried.is_some() || polls.beside.is_some() {
            return;
        }
        let limit = if polls.was_told_to_run { FIRST_END_WAIT } else { Duration::ZERO };
        polls.carried = timeout(limit, pool.next_reports()).await.ok();
    }

    /// One poll. What ends meanwhile is reported beside it, unless the poll carries ends itself. `None`: it
    /// was given up, because it carries the last ends of a worker that is to stop, and could wait for
    /// long.
    async fn ask<'a>(
        &'a self,
        polls: &mut Polls<'a>,
    ) -> Option<Result<Result<PollReply, EngineFault>, CallError>> {
        let Polls { cursor, carried, beside, calls_told, .. } = polls;
        let ended = carried.as_ref().map(|batch| batch.ended_tasks.clone()).unwrap_or_default();
        let mut activity = self.activity(carried.as_ref()).await;
        activity.calls = self.running_calls(calls_told);
        // Where something is still to end, the next poll will be needed soon.
        let may_wait = match (&self.calls, &carried) {
            (Some(pool), Some(_)) => activity.tasks == 0 && !pool.is_closed(),
            _ => true,
        };
        let (cursor, wait_ms) = (*cursor, if may_wait { POLL_WAIT_MS } else { 0 });
        // An engine that is silent for so long would drop a worker that is; another one may lead by then.
        let limit = self.poll_timeout + Duration::from_millis(wait_ms);
        let call = self
            .link
            .call(|c| async move { c.poll(within(limit), self.who, activity, cursor, ended, wait_ms).await });
        let mut call = pin!(call);
        let Some(pool) = &self.calls else { return Some(call.await) };
        loop {
            tokio::select! {
                answer = &mut call => return Some(answer),
                () = end_of(beside), if beside.is_some() => *beside = None,
                batch = pool.next_reports(), if carried.is_none() && beside.is_none() => {
                    *beside = Some(Box::pin(self.report_ends(pool, batch)));
                }
                () = pool.closing(), if carried.is_some() && may_wait => return None,
            }
        }
    }

    /// What the worker does, as a poll tells it that carries these ends.
    async fn activity(&self, carried: Option<&Batch>) -> Activity {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (running_ms, longest_ms) = self.tracker.timer.running_and_longest_ms();
        let held = self.calls.as_ref().map_or(0, Pool::count);
        let short = |text| shortened(text, MAX_TEXT_CHARS);
        let mut unreached = self.tracker.shards.unreached();
        unreached.truncate(MAX_UNREACHED_TOLD);
        Activity {
            holding: lock(&self.holding).clone(),
            blocked_on: self.tracker.blocked_on().map(short),
            transport: self.tracker.shards.transport_words().map(short),
            running_ms,
            longest_ms,
            tasks: count(held.saturating_sub(carried.map_or(0, Batch::count))),
            stopping: count(self.calls.as_ref().map_or(0, Pool::stopping)),
            stopping_functions: self.calls.as_ref().map(Pool::stopping_functions).unwrap_or_default(),
            calls: None,
            unreached,
        }
    }

    /// The calls that run, unless the engine was told of them a moment ago.
    fn running_calls(&self, told: &mut Option<Instant>) -> Option<Vec<RunningCall>> {
        let pool = self.calls.as_ref()?;
        let now = Instant::now();
        if told.is_some_and(|told| now.saturating_duration_since(told) < CALLS_INTERVAL) {
            return None;
        }
        *told = Some(now);
        Some(pool.running())
    }

    /// Takes what poll `number` was answered with.
    async fn take(
        &self,
        news: PollReply,
        polls: &mut Polls<'_>,
        number: Option<u64>,
        executor: &TaskSender,
    ) -> Result<(), Hangup> {
        if !news.shards.is_empty() {
            self.tracker.shards.set(news.shards);
        }
        self.tracker.shards.set_heard(news.shards_heard);
        if news.lead_expired {
            self.link.try_another().await;
        }
        polls.was_told_to_run = news.orders.orders.iter().any(|order| matches!(order, Order::Run(_)));
        if let (Some(pool), Some(number)) = (&self.calls, number) {
            // Orders that did not fit into this answer may refer to what has been acknowledged.
            if take_orders(pool, polls, news.epoch, news.orders) {
                pool.poll_answered(number);
            }
            if news.ends_taken
                && let Some(batch) = polls.carried.take()
            {
                pool.acknowledge(batch);
            }
        }
        let mut holding = lock(&self.holding);
        if !news.revoked.is_empty() {
            let revoked: HashSet<_> = news.revoked.iter().collect();
            holding.retain(|key| !revoked.contains(key));
        }
        self.tracker.revoke(&news.revoked);
        for assignment in news.assignments {
            holding.push(assignment.key.clone());
            self.tracker.queue(&assignment.key);
            executor.send(assignment)?;
        }
        Ok(())
    }

    /// Sends ends until they are acknowledged.
    async fn report_ends(&self, pool: &Pool, batch: Batch) {
        loop {
            let ended = batch.ended_tasks.clone();
            let call =
                self.link.call(|c| async move { c.finished(within(CALL_TIMEOUT), self.who, ended).await });
            match call.await {
                Ok(Ok(epoch)) if self.is_current(epoch) => break,
                Ok(Ok(_)) => {}
                Ok(Err(fault)) => debug!(%fault, "ends of tasks are not taken yet"),
                Err(error) => debug!(%error, "ends of tasks did not come through"),
            }
            sleep(RETRY_DELAY).await;
        }
        pool.acknowledge(batch);
    }
}

/// Waits for the end of such a call, if there is one.
async fn end_of(call: &mut Option<ReportCall<'_>>) {
    match call {
        Some(call) => call.await,
        None => pending().await,
    }
}

/// Takes what is new among the orders of a poll's answer.
fn take_orders(pool: &Pool, polls: &mut Polls<'_>, epoch: EngineEpoch, told: Orders) -> bool {
    let Orders { first, count, retold, mut orders } = told;
    if epoch != polls.cursor.epoch {
        polls.cursor = OrderCursor { epoch, next: first };
        polls.retelling = Some(Retelling::of(retold));
        pool.engine_changed();
    }
    let cursor = &mut polls.cursor;
    // Those below the cursor were taken from an earlier answer.
    let known = usize::try_from(cursor.next.saturating_sub(first)).unwrap_or(usize::MAX);
    orders.drain(..known.min(orders.len()));
    let begin = cursor.next.max(first);
    cursor.next = begin + orders.len() as u64;
    if let Some(retelling) = &mut polls.retelling {
        let given = orders.split_off(retelling.part_of(begin, orders.len()));
        retelling.note(&orders);
        let whole = polls.retelling.take_if(|retelling| retelling.is_whole(cursor.next));
        pool.take(orders, whole.map(|named| (epoch, named)));
        orders = given;
    }
    pool.take(orders, None);
    cursor.next >= count
}

#[cfg(test)]
mod tests;
