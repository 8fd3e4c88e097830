//! What a task gave.

#[cfg(feature = "worker")]
use std::collections::HashMap;
use std::{any::type_name, time::Duration};

use serde::de::DeserializeOwned;
use syncline_ps::client::MISSING_PATIENCE;
use syncline_rpc::within;
use syncline_scheduler::{
    ids::{JobId, JobRef},
    tasks::{BlobValue, Bytes, TaskIndex, TaskState, Value},
};
use tokio::time::{Instant, sleep};

use super::{GraphRun, TaskError};
use crate::{
    client::{
        Client, ClientError,
        calls::CALL_TIMEOUT,
        shard_absence::{SHARD_PAUSE, ShardAbsence},
    },
    functions::{TaskHandle, ValueStore, decode, is_lost},
};

/// Between two looks, unless the job ends: a tenth of the time waited so far, so that a short wait ends soon
/// and a long one costs little.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Tasks whose values one call asks for.
const MAX_ASKED: usize = 1_000;
/// Looks that find little take up a tenth of the time at most.
const MOST_BUSY: u32 = 10;
/// However long a look takes, the next one follows after so long: through a time without an engine it was not
/// busy.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// How long to wait for the next look.
pub(super) fn pause(waited: Duration) -> Duration {
    (waited / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// How long to do without looks after one that took so long.
pub(super) fn rest_after_look(took: Duration) -> Duration {
    took.saturating_mul(MOST_BUSY).min(LONGEST_REST)
}

impl GraphRun {
    /// What a task gives, once it is done. Waits as [`wait`](Self::wait) does: for as long as it takes, and
    /// through five minutes without an engine, Redis, or the shard that has a large value.
    ///
    /// # Errors
    /// E341 if the task failed, was skipped or canceled; E342 if only other tasks took its value, which is
    /// then not kept; E669 if its value is large and lost, E410 if a shard that may have it was away for
    /// all that time; E598 for a handle of another graph; E650 if another job has the name by now.
    pub async fn get<T: DeserializeOwned>(&self, handle: &TaskHandle<T>) -> Result<T, TaskError> {
        self.value_of(self.task_of(handle)?, MISSING_PATIENCE).await
    }
}

impl Client {
    /// What [`GraphRun::get`] gives, of the task of that name, for a program that has no handle: which type
    /// it gives is up to the caller. The bytes of a value say nothing of its type, and may well be read
    /// as another: a text is also a list of small numbers.
    ///
    /// # Errors
    /// As [`GraphRun::get`]; E344 if the job has no task of that name, E343 if its bytes cannot be read as
    /// that type.
    pub async fn get_named<T: DeserializeOwned>(&self, job: &JobId, name: &str) -> Result<T, TaskError> {
        let view = self.task_named(job, &name.parse()?).await?;
        self.value_of(&job.clone().into(), view.task, Instant::now(), MISSING_PATIENCE).await
    }

    /// `seen`: when the job was there, as far as is known. `missing_patience`: how long a large value that no
    /// shard has is asked for again, as one of them may have taken over a moment ago.
    pub(super) async fn value_of<T: DeserializeOwned>(
        &self,
        job: &JobRef,
        task: TaskIndex,
        seen: Instant,
        missing_patience: Duration,
    ) -> Result<T, TaskError> {
        let mut missing_since = None;
        let bytes = loop {
            let blob = match self.value_when_done(job, task, seen).await? {
                Value::Inline(bytes) => break bytes,
                Value::Blob(blob) => blob,
            };
            match self.large_value(blob).await {
                Err(TaskError::Shard(cause)) if is_lost(&cause) => {
                    if missing_since.get_or_insert_with(Instant::now).elapsed() >= missing_patience {
                        return Err(TaskError::Lost { job: job.id.clone(), task, cause });
                    }
                    sleep(SHARD_PAUSE).await;
                }
                fetched => break fetched?,
            }
        };
        decoded(job, task, &bytes)
    }

    /// A value that lies on the shards.
    async fn large_value(&self, blob: BlobValue) -> Result<Bytes, TaskError> {
        while_shards_are_away(self.to_wait().engine, || {
            let blob = blob.clone();
            async { Ok(self.with_values(move |store, cancel_token| store.get(&blob, cancel_token)).await??) }
        })
        .await
    }

    /// What these tasks gave, as far as it is kept.
    #[cfg(feature = "worker")]
    pub(crate) async fn kept_values(
        &self,
        job: &JobRef,
        tasks: impl IntoIterator<Item = TaskIndex>,
    ) -> Result<HashMap<TaskIndex, Value>, ClientError> {
        let (mut kept, tasks) = (HashMap::new(), tasks.into_iter().collect::<Vec<_>>());
        let mut left = tasks.as_slice();
        while !left.is_empty() {
            let values = self.values_now(job, left).await?;
            let (answered, later) = left.split_at(values.len().clamp(1, left.len()));
            kept.extend(answered.iter().zip(values).filter_map(|(task, value)| Some((*task, value?))));
            left = later;
        }
        Ok(kept)
    }

    /// What a task has given, once it is done.
    async fn value_when_done(
        &self,
        job: &JobRef,
        task: TaskIndex,
        mut seen: Instant,
    ) -> Result<Value, TaskError> {
        let since = Instant::now();
        loop {
            match self.value_or_end(job, task).await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => seen = Instant::now(),
                Err(TaskError::Engine(error)) if self.may_come_back(&error, seen.elapsed()).await => {}
                Err(error) => return Err(error),
            }
            self.until_over(job, pause(since.elapsed())).await;
        }
    }

    /// What a task has given; `None` as long as it has not ended.
    async fn value_or_end(&self, job: &JobRef, task: TaskIndex) -> Result<Option<Value>, TaskError> {
        if let Some(value) = self.value_now(job, task).await? {
            return Ok(Some(value));
        }
        let view = self.task_within(self.to_wait(), job, task).await?;
        if view.state == TaskState::Done {
            // It has ended between the two looks.
            let value = self.value_now(job, task).await?;
            return value.map(Some).ok_or_else(|| TaskError::NotKept { job: job.id.clone(), task });
        }
        if view.state.is_final() {
            // The state is said already.
            let reason = view.reason.strip_prefix("it failed: ").unwrap_or(&view.reason).to_owned();
            let (state, code) = (view.state, view.code);
            return Err(TaskError::NoValue { job: job.id.clone(), task, state, code, reason });
        }
        Ok(None)
    }

    /// The small values that the first of these tasks have given, in their order: of as many as one answer
    /// holds, and of none where the engine says what is for whoever asks for one of them to judge. What
    /// passes was waited for already.
    pub(super) async fn small_values(
        &self,
        job: &JobRef,
        tasks: impl Iterator<Item = TaskIndex>,
    ) -> Result<Vec<Option<Bytes>>, ClientError> {
        let asked: Vec<TaskIndex> = tasks.take(MAX_ASKED).collect();
        let given = unless_it_passes(self.values_now(job, &asked).await)?;
        let small = |value| if let Some(Value::Inline(bytes)) = value { Some(bytes) } else { None };
        Ok(given.into_iter().take(asked.len()).map(small).collect())
    }

    /// What the first of these tasks have given, in their order: of as many as one answer holds.
    async fn values_now(&self, job: &JobRef, tasks: &[TaskIndex]) -> Result<Vec<Option<Value>>, ClientError> {
        let asked = &tasks[..tasks.len().min(MAX_ASKED)];
        self.retry_for(self.to_wait(), |c| {
            let (job, asked) = (job.clone(), asked.to_vec());
            async move { c.values(within(CALL_TIMEOUT), job, asked).await }
        })
        .await
    }

    async fn value_now(&self, job: &JobRef, task: TaskIndex) -> Result<Option<Value>, ClientError> {
        Ok(self.values_now(job, &[task]).await?.into_iter().next().flatten())
    }
}

/// What was given to a call that was repeated for as long as whoever waits is patient: what passes has had its
/// time by then. Any other error is told again to whoever asks for one of the tasks, who knows what it means.
fn unless_it_passes<T>(given: Result<Vec<T>, ClientError>) -> Result<Vec<T>, ClientError> {
    match given {
        Err(error) if !error.is_passing() => Ok(Vec::new()),
        given => given,
    }
}

/// A value by its bytes. None are kept of one that only other tasks took.
pub(super) fn decoded<T: DeserializeOwned>(
    job: &JobRef,
    task: TaskIndex,
    bytes: &[u8],
) -> Result<T, TaskError> {
    decode(bytes).map_err(|cause| match bytes.is_empty() {
        true => TaskError::NotKept { job: job.id.clone(), task },
        false => TaskError::Decode { job: job.id.clone(), task, wanted: type_name::<T>(), cause },
    })
}

/// Fetches again while shards, or the engine that names them, are away, for so long.
async fn while_shards_are_away<T, F>(limit: Duration, fetch: impl Fn() -> F) -> Result<T, TaskError>
where
    F: Future<Output = Result<T, TaskError>>,
{
    let mut absence = ShardAbsence::of_at_most(limit);
    loop {
        match fetch().await {
            Err(error) if error.may_pass() && absence.is_short(0, std::time::Instant::now()) => {
                sleep(SHARD_PAUSE).await;
            }
            fetched => return fetched,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use syncline_ps::PsError;
    use syncline_rpc::{EngineFault, ShardFault};
    use syncline_scheduler::ids::ContentDigest;

    use super::*;

    #[test]
    fn an_engine_that_was_waited_for_in_vain_is_not_waited_for_once_more() {
        let asked =
            |fault: EngineFault| unless_it_passes::<u8>(Err(fault.into())).map_err(|error| error.code());
        let away = asked(EngineFault::Store { cause: "no answer".into() });
        assert_eq!(away.unwrap_err().to_string(), "E135");
        let unknown = asked(EngineFault::UnknownJob { job: "sums".parse().unwrap() });
        assert!(unknown.unwrap().is_empty(), "whoever asks for one knows whether it may come back");
        assert_eq!(unless_it_passes(Ok(vec![7])).unwrap(), [7]);
    }

    #[test]
    fn a_look_that_waited_for_an_engine_puts_the_next_one_off_for_seconds_only() {
        assert_eq!(rest_after_look(Duration::from_millis(20)), Duration::from_millis(200));
        assert_eq!(rest_after_look(Duration::from_secs(120)), LONGEST_REST);
    }

    #[tokio::test]
    async fn a_value_on_a_shard_that_is_away_is_waited_for_and_one_that_is_lost_is_not_table() {
        let away =
            || PsError::Unreachable { address: "a:1".into(), after_ms: 10_000, cause: "refused".into() };
        let unnamed = || ClientError::from(EngineFault::MissingShards { present: 0, expected: 1 });
        let lost = || PsError::from(ShardFault::MissingBlob { digest: ContentDigest::LOWEST });
        let fetch = async |limit_s, answers: Vec<TaskError>| {
            let answers = RefCell::new(answers.into_iter());
            let next = || {
                let answer = answers.borrow_mut().next();
                async { answer.map_or(Ok(7), Err) }
            };
            let fetched = while_shards_are_away(Duration::from_secs(limit_s), next).await;
            fetched.map_err(|error| error.code().to_string())
        };
        assert_eq!(fetch(300, vec![away().into(), unnamed().into(), away().into()]).await, Ok(7));
        assert_eq!(fetch(300, vec![lost().into()]).await, Err("E404".to_owned()));
        assert_eq!(fetch(0, vec![away().into()]).await, Err("E410".to_owned()));
    }
}
