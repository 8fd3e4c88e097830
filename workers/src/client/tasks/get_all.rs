//! What many tasks gave.

use std::{collections::VecDeque, panic::resume_unwind};

use serde::de::DeserializeOwned;
use syncline_ps::client::MISSING_PATIENCE;
use syncline_scheduler::tasks::TaskIndex;
use tokio::{task::JoinSet, time::Instant};

use super::{
    GraphRun, TaskError,
    value::{decoded, rest_after_look},
};
use crate::functions::TaskHandle;

/// Tasks that are waited for, or whose large values are fetched, at a time.
const MAX_AT_ONCE: usize = 32;

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
                let (taken, answered) = self.take_small(&mut open, &mut values).await?;
                if taken * 2 > answered {
                    continue;
                }
                next_look = Instant::now() + rest_after_look(began.elapsed());
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

    /// Takes the small values that the first of the open tasks have given. How many these are, and of how many
    /// tasks the engine has answered.
    async fn take_small<T: DeserializeOwned>(
        &self,
        open: &mut Open,
        values: &mut [Option<T>],
    ) -> Result<(usize, usize), TaskError> {
        let given = self.client.small_values(&self.job, open.iter().map(|(_, task)| *task)).await?;
        let (answered, mut others) = (given.len(), Vec::new());
        for ((place, task), value) in open.drain(..answered).zip(given) {
            match value {
                Some(bytes) => values[place] = Some(decoded(&self.job, task, &bytes)?),
                None => others.push((place, task)),
            }
        }
        let taken = answered - others.len();
        others.into_iter().rev().for_each(|other| open.push_front(other));
        Ok((taken, answered))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use syncline_rpc::{ClientServiceRequest as Request, ClientServiceResponse as Response};
    use syncline_scheduler::{ids::JobRef, tasks::Value};

    use super::*;
    use crate::{
        client::{Client, fake_engine},
        functions::{Function, TaskGraph},
    };

    const SHORT: Function<(u64,), u64> = Function::new("short");

    fn run(client: Client, tasks: u64) -> (GraphRun, Vec<TaskHandle<u64>>) {
        let mut graph = TaskGraph::new("many");
        let handles = (0..tasks).map(|n| graph.call(SHORT, (n,))).collect();
        let job = JobRef { id: "many".parse().unwrap(), nonce: Some(1) };
        (GraphRun::new(client, job, true, graph.number()), handles)
    }

    #[tokio::test]
    async fn values_of_which_an_answer_holds_few_come_in_as_few_answers_as_that_takes() {
        const HELD: usize = 100;
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let client = fake_engine::start(move |request| match request {
            Request::Values { tasks, .. } => {
                counted.fetch_add(1, Ordering::SeqCst);
                let value = |task: &TaskIndex| {
                    Some(Value::Inline(postcard::to_stdvec(&u64::from(task.0)).unwrap().into()))
                };
                Some(Response::Values(Ok(tasks.iter().take(HELD).map(value).collect())))
            }
            _ => None,
        });
        let (run, handles) = run(client.await, 950);
        assert_eq!(run.get_all(&handles).await.unwrap(), Vec::from_iter(0..950));
        assert_eq!(calls.load(Ordering::SeqCst), 10);
    }
}
