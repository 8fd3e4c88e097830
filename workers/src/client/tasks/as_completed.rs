//! What tasks give, in the order in which they end.

use std::{
    collections::{HashMap, VecDeque},
    marker::PhantomData,
    time::Duration,
};

use serde::de::DeserializeOwned;
use syncline_ps::client::MISSING_PATIENCE;
use syncline_rpc::within;
use syncline_scheduler::{
    ids::JobRef,
    tasks::{Bytes, TaskIndex},
};
use tokio::time::{Instant, sleep};

use super::{
    GraphRun, TaskError,
    value::{decoded, pause, rest_after_look},
};
use crate::{
    client::{Client, ClientError, calls::CALL_TIMEOUT, shard_absence::SHARD_PAUSE},
    functions::TaskHandle,
};

/// Tasks that one call asks about: the engine decides nothing else while it looks at them.
const MAX_ASKED: usize = 10_000;

/// A task that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completed<T> {
    /// Which of the handles that were given, from 0.
    pub index: usize,
    /// What it gives, or why it gives nothing: E341, E342, E343, or E669 if its value is lost.
    pub value: Result<T, TaskError>,
}

/// Tasks as they end, see [`GraphRun::as_completed`]. It has a client of its own, so that a task may have it.
pub struct AsCompleted<T> {
    run: GraphRun,
    /// Which have not ended as far as is known; the first of them are asked about next.
    open: Vec<(usize, TaskIndex)>,
    ended: VecDeque<(usize, TaskIndex)>,
    /// Those that have ended and whose values could not be had: the others come before they are tried again.
    failed: VecDeque<(usize, TaskIndex)>,
    /// About so many of the first that have ended it was asked whether their values are small.
    asked_for: usize,
    /// The small values of those.
    small: HashMap<TaskIndex, Bytes>,
    /// Since when no shard has had a value: one that has just taken over may not know yet where it is.
    missing: HashMap<TaskIndex, Instant>,
    /// When the last one ended, or the first look.
    since: Option<Instant>,
    gives: PhantomData<fn() -> T>,
}

impl GraphRun {
    /// What these tasks give, one after the other, each as soon as it has ended: a program goes on with the
    /// first results while the others are still computed, and leaves whenever it has enough. Those that
    /// have ended between two looks come in any order.
    ///
    /// A look costs one call for 10,000 tasks that are open, until one of these has ended. It comes after a
    /// tenth of the time since one has ended last, 2 to 200 milliseconds, and after ten times what the
    /// look before has taken.
    ///
    /// # Errors
    /// E598 for a handle of another graph.
    pub fn as_completed<T>(&self, handles: &[TaskHandle<T>]) -> Result<AsCompleted<T>, TaskError> {
        Ok(AsCompleted {
            run: self.clone(),
            open: self.tasks_of(handles)?.into_iter().enumerate().collect(),
            ended: VecDeque::new(),
            failed: VecDeque::new(),
            asked_for: 0,
            small: HashMap::new(),
            missing: HashMap::new(),
            since: None,
            gives: PhantomData,
        })
    }
}

impl Client {
    async fn ended_tasks(&self, job: &JobRef, asked: &[TaskIndex]) -> Result<Vec<TaskIndex>, ClientError> {
        self.retry_for(self.to_wait(), |c| {
            let (job, asked) = (job.clone(), asked.to_vec());
            async move { c.ended_tasks(within(CALL_TIMEOUT), job, asked).await }
        })
        .await
    }
}

impl<T> AsCompleted<T> {
    /// How many have not been given yet.
    pub fn remaining(&self) -> usize {
        self.open.len() + self.ended.len() + self.failed.len()
    }
}

impl<T: DeserializeOwned> AsCompleted<T> {
    /// Waits for the next task that ends; `None` once each was given. Waits for as long as it takes, and
    /// through five minutes without an engine or Redis. May be called again after an error, and may be
    /// dropped while it waits: no task is lost or given twice.
    ///
    /// # Errors
    /// E131 if there is no such job, E650 if another has its name by now, E138 if it has fewer tasks; E300 if
    /// no engine is reached, E136 if none leads; of the shards, what keeps them from giving a large
    /// value for now. That a task failed, or that its value is lost, is no error here: it is in
    /// [`value`](Completed::value).
    pub async fn next(&mut self) -> Result<Option<Completed<T>>, TaskError> {
        while let Some((index, task)) = self.next_ended().await? {
            self.ask_for_small().await?;
            let value = match self.small.remove(&task) {
                Some(bytes) => decoded(&self.run.job, task, &bytes),
                None => self.run.value_of(task, Duration::ZERO).await,
            };
            match value {
                Err(TaskError::Lost { .. }) if self.may_be_found(task) => {
                    let first = self.pop_ended();
                    self.failed.extend(first);
                    if self.ended.is_empty() && self.open.is_empty() {
                        sleep(SHARD_PAUSE).await;
                    }
                }
                Err(error) if !tells_of_the_task(&error) => {
                    let first = self.pop_ended();
                    self.failed.extend(first);
                    return Err(error);
                }
                value => {
                    self.pop_ended();
                    self.since = Some(Instant::now());
                    return Ok(Some(Completed { index, value }));
                }
            }
        }
        Ok(None)
    }

    fn pop_ended(&mut self) -> Option<(usize, TaskIndex)> {
        self.asked_for = self.asked_for.saturating_sub(1);
        self.ended.pop_front()
    }

    /// Has the small values of many that have ended come in one answer.
    async fn ask_for_small(&mut self) -> Result<(), ClientError> {
        if self.asked_for > 0 || self.ended.len() < 2 {
            return Ok(());
        }
        let ended = || self.ended.iter().map(|(_, task)| *task);
        let values = self.run.client.small_values(&self.run.job, ended()).await?;
        self.asked_for = values.len();
        let small = ended().zip(values).filter_map(|(task, value)| Some((task, value?)));
        self.small.extend(small);
        Ok(())
    }

    /// Waits until a task has ended that was not given yet; `None` once each was.
    async fn next_ended(&mut self) -> Result<Option<(usize, TaskIndex)>, TaskError> {
        while self.ended.is_empty() {
            if self.open.is_empty() {
                self.ended.append(&mut self.failed);
                break;
            }
            let since = *self.since.get_or_insert_with(Instant::now);
            let asked = Instant::now();
            match self.look().await {
                Ok(()) => self.run.seen = Instant::now(),
                Err(TaskError::Engine(error))
                    if self.run.client.may_come_back(&error, self.run.seen.elapsed()).await => {}
                Err(error) => return Err(error),
            }
            if self.ended.is_empty() {
                let rest = pause(since.elapsed()).max(rest_after_look(asked.elapsed()));
                self.run.client.until_over(&self.run.job, rest).await;
                // No other has ended, and the shard that has it may have come back.
                self.ended.append(&mut self.failed);
            }
        }
        Ok(self.ended.front().copied())
    }

    /// Whether a value that no shard has now may be there in a moment. Others come before it is asked for
    /// again.
    fn may_be_found(&mut self, task: TaskIndex) -> bool {
        self.missing.entry(task).or_insert_with(Instant::now).elapsed() < MISSING_PATIENCE
    }

    /// Asks about the open tasks, some at a time, until some of these have ended; the next look begins behind
    /// them.
    async fn look(&mut self) -> Result<(), TaskError> {
        for _ in 0..self.open.len().div_ceil(MAX_ASKED) {
            let count = self.open.len().min(MAX_ASKED);
            let asked: Vec<TaskIndex> = self.open[..count].iter().map(|(_, task)| *task).collect();
            // As they were asked for, and a task may be asked for twice.
            let mut ended = self.run.client.ended_tasks(&self.run.job, &asked).await?.into_iter().peekable();
            let (ended, open): (Vec<_>, Vec<_>) =
                self.open.drain(..count).partition(|(_, task)| ended.next_if_eq(task).is_some());
            self.open.extend(open);
            self.ended.extend(ended);
            if !self.ended.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// Whether the error is how the task ended, which stays so.
fn tells_of_the_task(error: &TaskError) -> bool {
    use TaskError::{Decode, Lost, NoValue, NotKept};
    matches!(error, NoValue { .. } | NotKept { .. } | Decode { .. } | Lost { .. })
}
