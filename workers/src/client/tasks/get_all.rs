//! What many tasks gave.

use std::{collections::VecDeque, panic::resume_unwind, time::Instant};

use serde::de::DeserializeOwned;
use syncline_ps::client::MISSING_PATIENCE;
use syncline_scheduler::tasks::{TaskIndex, Value};
use tokio::task::JoinSet;

use super::{
    GraphRun, TaskError,
    value::{MAX_ASKED, decoded},
};
use crate::functions::TaskHandle;

/// Tasks that are waited for, or whose large values are fetched, at a time.
const MAX_AT_ONCE: usize = 32;
/// Looks that find little take up a tenth of the time at most.
const MOST_BUSY: u32 = 10;

/// The place of a task among those that were asked for, and the task.
type Open = VecDeque<(usize, TaskIndex)>;

impl GraphRun {
    /// What each of these tasks gives, in their order, once all are done. Small values come up to a thousand
    /// at a time; several tasks are waited for, and large values fetched, side by side. The first that is
    /// found to give nothing ends it.
    ///
    /// # Errors
    /// As [`get`](Self::get), of one of the tasks.
    pub async fn get_all<T: DeserializeOwned + Send + 'static>(
        &self,
        handles: &[TaskHandle<T>],
    ) -> Result<Vec<T>, TaskError> {
        let mut values: Vec<Option<T>> = handles.iter().map(|_| None).collect();
        let mut open: Open = self.tasks_of(handles)?.into_iter().enumerate().collect();
        let (mut waiting, mut next_look) = (JoinSet::new(), Instant::now());
        loop {
            if open.len() > 1 && Instant::now() >= next_look {
                let began = Instant::now();
                let asked = open.len().min(MAX_ASKED);
                if self.take_small(&mut open, &mut values).await? * 2 > asked {
                    continue;
                }
                next_look = Instant::now() + began.elapsed() * MOST_BUSY;
            }
            while waiting.len() < MAX_AT_ONCE
                && let Some((place, task)) = open.pop_front()
            {
                let run = self.clone();
                waiting.spawn(async move { (place, run.value_of(task, MISSING_PATIENCE).await) });
            }
            let Some(given) = waiting.join_next().await else { break };
            // A panic of ours is one here, too.
            let (place, value) = given.unwrap_or_else(|ended| resume_unwind(ended.into_panic()));
            values[place] = Some(value?);
        }
        Ok(values.into_iter().flatten().collect())
    }

    /// Takes the small values that the first of the open tasks have given. How many these are.
    async fn take_small<T: DeserializeOwned>(
        &self,
        open: &mut Open,
        values: &mut [Option<T>],
    ) -> Result<usize, TaskError> {
        let asked: Vec<TaskIndex> = open.iter().take(MAX_ASKED).map(|(_, task)| *task).collect();
        // Who waits for one of them bears what passes, and says what does not.
        let Ok(given) = self.client.values_now(&self.job, &asked).await else { return Ok(0) };
        let (mut taken, mut others) = (0, Vec::new());
        for ((place, task), value) in open.drain(..given.len().min(asked.len())).zip(given) {
            match value {
                Some(Value::Inline(bytes)) => {
                    values[place] = Some(decoded(&self.job, task, &bytes)?);
                    taken += 1;
                }
                Some(Value::Blob(_)) | None => others.push((place, task)),
            }
        }
        others.into_iter().rev().for_each(|other| open.push_front(other));
        Ok(taken)
    }
}
