//! The calls that the engine answers, typed, and repeated while it is away.

use std::{collections::BTreeMap, time::Duration};

use serde::de::DeserializeOwned;
use syncline_rpc::{
    CheckpointParts, ClientServiceClient, Collected, EngineFault, FolderGc, Forgotten, JobFolders, JobRecord,
    JobStream, StreamCursor, StreamEntry,
    status::{
        EngineStatus, Entry, EvaluationPoint, JobEvent, JobList, JobPhase, JobStatus, JobView, LiveWorker,
        MetricsPoint, mark_best,
    },
    within,
};
use syncline_scheduler::{
    core::{BarrierExplanation, IfTaken, KeptExplanations, TaskExplanation},
    graph::TaskId,
    ids::{JobId, JobRef, Superstep},
    spec::JobSpec,
    tasks::TaskIndex,
};

use super::{Cancellation, Client, ClientError, Patience};

pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Removing files takes a while where there are many.
const GC_TIMEOUT: Duration = Duration::from_secs(120);
/// Shards read their parts whole before they share them.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long one poll may take: a person who watches wants to know that nothing answers.
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// Rounded up: nothing is removed that is to be spared.
fn whole_seconds(age: Duration) -> u64 {
    age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0))
}

impl Client {
    /// What the engine that leads says about itself right now: nothing is repeated. Where none of those that
    /// are known leads, or that one is not reached, what one says that stands by.
    ///
    /// # Errors
    /// E300 if no engine is reached, E143 if it is of another release.
    pub async fn engine(&self) -> Result<EngineStatus, ClientError> {
        let stands_by = |about: &BTreeMap<String, String>| {
            about.contains_key("idle").then(|| about.get("leader").cloned().unwrap_or_default())
        };
        let about = self
            .once_judged(|c| async move { c.describe_engine(within(CALL_TIMEOUT)).await }, stands_by)
            .await?;
        Ok(EngineStatus::read(&about)?)
    }

    /// Addresses of the parameter shards, waiting until all are there.
    ///
    /// # Errors
    /// E300 if no engine is reached, E136 if none leads, E133 if not all shards are there in time.
    pub async fn shards(&self) -> Result<Vec<String>, ClientError> {
        self.retry(|c| async move { c.shards(within(CALL_TIMEOUT)).await }).await
    }

    /// Submits a spec whose blobs are uploaded. Returns when it is committed in Redis, with the nonce of the
    /// job and whether it is a new one: the same spec again is the job that is there. Repeated while the
    /// engine is away, which makes no second job. With [`IfTaken::Replace`] a job of the same id that is over
    /// makes room, with all that is stored of it but its snapshot files.
    ///
    /// # Errors
    /// E020 to E029 for a spec that makes no sense, E130 if the id is another job's, E140 if the job to be
    /// replaced goes on, E132 if a blob was not uploaded; E135 if Redis does not do its part; E300 if no
    /// engine is reached, E136 if none leads.
    pub(super) async fn submit_spec(
        &self,
        spec: JobSpec,
        if_taken: IfTaken,
    ) -> Result<(u32, bool), ClientError> {
        let nonce: u32 = rand::random();
        let there = self
            .retry_for(Patience::all(self.patience.engine), |c| {
                let spec = spec.clone();
                async move { c.submit(within(CALL_TIMEOUT), spec, nonce, if_taken).await }
            })
            .await?;
        Ok((there, there == nonce))
    }

    /// Removes a job that is over or damaged, with all that is stored of it but its snapshot files.
    ///
    /// # Errors
    /// E131 if there is no such job, E140 if it goes on; E300 if no engine is reached, E136 if none leads.
    pub async fn delete(&self, job: &JobId) -> Result<(), ClientError> {
        self.retry_ending(
            |fault| matches!(fault, EngineFault::UnknownJob { .. }),
            |c| {
                let job = job.clone();
                async move { c.delete(within(CALL_TIMEOUT), job).await }
            },
        )
        .await
    }

    /// Removes blobs from the shards that no job names and that came, or were asked for, longer ago than
    /// this.
    ///
    /// # Errors
    /// E139 if a job cannot be read, whose blobs nobody knows then, E142 if a shard does not do it; E300 if
    /// no engine is reached, E136 if none leads.
    pub async fn gc(&self, older_than: Duration) -> Result<Collected, ClientError> {
        let older_than_s = whole_seconds(older_than);
        self.retry(|c| async move { c.gc(within(GC_TIMEOUT), older_than_s).await }).await
    }

    /// What lies on the shards' disks in folders of jobs that nobody knows any more, and in which nothing was
    /// written for so long: checkpoints of jobs whose keys expired, or that Redis has lost, while no
    /// engine was there; snapshots of jobs that were deleted or are over for more than a week.
    ///
    /// # Errors
    /// E142 if a shard does not do it; E300 if no engine is reached, E136 if none leads.
    #[doc(hidden)]
    pub async fn gc_folders(
        &self,
        what: JobFolders,
        older_than: Duration,
        gc: FolderGc,
    ) -> Result<Forgotten, ClientError> {
        let older_than_s = whole_seconds(older_than);
        self.retry(|c| async move { c.gc_folders(within(GC_TIMEOUT), what, older_than_s, gc).await }).await
    }

    /// A complete checkpoint of a training, whose parts the shards keep as blobs for a while.
    pub(super) async fn checkpoint_parts(
        &self,
        job: &JobId,
        number: Option<u64>,
    ) -> Result<CheckpointParts, ClientError> {
        let call = |c: ClientServiceClient| {
            let job = job.clone();
            async move { c.checkpoint(within(CHECKPOINT_TIMEOUT), job, number).await }
        };
        self.retry(call).await
    }

    /// Every job known, oldest first; of more than some ten thousand the newest.
    /// [`list_jobs`](Self::list_jobs) says how many are left out.
    ///
    /// # Errors
    /// E300 if no engine is reached, E136 if none leads, E143 if it is of another release.
    pub async fn jobs(&self) -> Result<Vec<JobStatus>, ClientError> {
        Ok(self.list_jobs(None).await?.jobs)
    }

    /// Every job that goes on, and the newest `most_over` of those that are over; without it all of them, as
    /// far as one answer holds them.
    ///
    /// # Errors
    /// As [`jobs`](Self::jobs).
    pub async fn list_jobs(&self, most_over: Option<u32>) -> Result<JobList, ClientError> {
        let listed = self.retry(|c| async move { c.jobs(within(CALL_TIMEOUT), most_over).await }).await?;
        Ok(JobList::read(&listed)?)
    }

    /// Every live worker, oldest first.
    ///
    /// # Errors
    /// E300 if no engine is reached, E136 if none leads, E143 if it is of another release.
    pub async fn workers(&self) -> Result<Vec<LiveWorker>, ClientError> {
        let workers = self.retry(|c| async move { c.workers(within(CALL_TIMEOUT)).await }).await?;
        Ok(workers.iter().map(LiveWorker::read).collect::<Result<_, _>>()?)
    }

    /// One job with its workers as of right now: nothing is repeated.
    ///
    /// # Errors
    /// E131 if there is no such job, E650 if another has its name by now; E300 if no engine is reached, E136
    /// if none leads, E143 if it is of another release.
    #[doc(hidden)]
    pub async fn status_once(&self, job: &JobRef) -> Result<JobView, ClientError> {
        let record = self
            .once(|c| {
                let job = job.clone();
                async move { c.job(within(POLL_TIMEOUT), job).await }
            })
            .await?;
        Ok(JobView::read_or_damaged(&record)?)
    }

    /// One job with its workers. One of which something cannot be read is damaged, as in
    /// [`jobs`](Self::jobs).
    ///
    /// # Errors
    /// E131 if there is no such job; E300 if no engine is reached, E136 if none leads, E143 if it is of
    /// another release.
    pub async fn status(&self, job: &JobId) -> Result<JobView, ClientError> {
        Ok(JobView::read_or_damaged(&self.record(job).await?)?)
    }

    /// The status of a job as the engine answers it, with every number as text: this is what loses nothing
    /// when it is kept.
    ///
    /// # Errors
    /// E131 if there is no such job; E300 if no engine is reached, E136 if none leads.
    #[doc(hidden)]
    pub async fn record(&self, job: &JobId) -> Result<JobRecord, ClientError> {
        self.poll(&job.clone().into(), self.patience).await
    }

    pub(super) async fn poll(&self, job: &JobRef, patience: Patience) -> Result<JobRecord, ClientError> {
        self.retry_for(patience, |c| {
            let job = job.clone();
            async move { c.job(within(POLL_TIMEOUT), job).await }
        })
        .await
    }

    /// The loss curve behind a point of it, oldest first; without one, all of it.
    ///
    /// # Errors
    /// E131 if there is no such job; E300 if no engine is reached, E136 if none leads.
    pub async fn metrics(
        &self,
        job: &JobId,
        after: Option<StreamCursor>,
    ) -> Result<Vec<Entry<MetricsPoint>>, ClientError> {
        self.stream(job, JobStream::Metrics, after).await
    }

    /// What its model was worth on samples that it is not trained on, behind a point of that, oldest first;
    /// without one, all of it, the best one always among them.
    ///
    /// # Errors
    /// E131 if there is no such job, E143 if the engine is of another release; E300 if no engine is reached,
    /// E136 if none leads.
    pub async fn evaluations(
        &self,
        job: &JobId,
        after: Option<StreamCursor>,
    ) -> Result<Vec<Entry<EvaluationPoint>>, ClientError> {
        let mut points = self.stream(job, JobStream::Evaluations, after).await?;
        if points.is_empty() && after.is_some() {
            return Ok(points);
        }
        // Asked behind the points: a best one that came meanwhile is put among them.
        let status = self.status(job).await?;
        mark_best(&mut points, &status.job, after.is_none());
        Ok(points)
    }

    /// What happened to a job after an event of it, oldest first; without one, all that is kept: the newest
    /// 200.
    ///
    /// # Errors
    /// E131 if there is no such job; E300 if no engine is reached, E136 if none leads.
    pub async fn events(
        &self,
        job: &JobId,
        after: Option<StreamCursor>,
    ) -> Result<Vec<Entry<JobEvent>>, ClientError> {
        self.stream(job, JobStream::Events, after).await
    }

    async fn stream<T: DeserializeOwned>(
        &self,
        job: &JobId,
        stream: JobStream,
        after: Option<StreamCursor>,
    ) -> Result<Vec<Entry<T>>, ClientError> {
        let entries = self.stream_entries(job, stream, after).await?;
        // One that somebody else has added must not hide the rest.
        Ok(entries.iter().filter_map(|entry| Entry::read(entry).ok()).collect())
    }

    /// Entries of a stream as the engine answers them, with every number as text.
    ///
    /// # Errors
    /// E131 if there is no such job; E300 if no engine is reached, E136 if none leads.
    #[doc(hidden)]
    pub async fn stream_entries(
        &self,
        job: &JobId,
        stream: JobStream,
        after: Option<StreamCursor>,
    ) -> Result<Vec<StreamEntry>, ClientError> {
        self.retry(|c| {
            let job = job.clone();
            async move { c.stream(within(CALL_TIMEOUT), job, stream, after).await }
        })
        .await
    }

    /// Why there is a barrier, whom it waits for, and what was expected of it.
    ///
    /// # Errors
    /// E131 if there is no such job, E138 if it has no such barrier, or does not keep it any more; E300 if no
    /// engine is reached, E136 if none leads.
    pub async fn explain_barrier(
        &self,
        job: &JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, ClientError> {
        self.retry(|c| {
            let job = job.clone();
            async move { c.explain_barrier(within(CALL_TIMEOUT), job, barrier).await }
        })
        .await
    }

    /// Why a task is in the state it is in.
    ///
    /// # Errors
    /// E131 if there is no such job, E138 if it has no such task, or does not keep it any more; E300 if no
    /// engine is reached, E136 if none leads.
    pub async fn explain_task(&self, job: &JobId, task: &TaskId) -> Result<TaskExplanation, ClientError> {
        self.retry(|c| {
            let (job, task) = (job.clone(), task.clone());
            async move { c.explain_task(within(CALL_TIMEOUT), job, task).await }
        })
        .await
    }

    /// Why each barrier and each task that is kept of a training is where it is, all as of one commit.
    ///
    /// # Errors
    /// E131 if there is no such job; E300 if no engine is reached, E136 if none leads.
    #[doc(hidden)]
    pub async fn explain_kept(&self, job: &JobId) -> Result<KeptExplanations, ClientError> {
        self.retry(|c| {
            let job = job.clone();
            async move { c.explain_kept(within(CALL_TIMEOUT), job).await }
        })
        .await
    }

    /// Cancels a job: nothing more of it begins, functions that run are told to stop and given up ten seconds
    /// later. The job is over then, or when the last of them has ended; [`wait`](Self::wait) waits for
    /// that.
    ///
    /// # Errors
    /// E131 if there is no such job, E137 if it is over; E300 if no engine is reached, E136 if none leads.
    pub async fn cancel(&self, job: &JobId) -> Result<(), ClientError> {
        self.cancel_with(job, &Cancellation::default()).await
    }

    /// Cancels one task of a graph, while the others go on: it fails (E602) and is not tried again, and what
    /// needs its value follows as after any failure; the job fails, unless the task has
    /// `skip_dependents_on_failure`. One that runs is told to stop, and given up after the grace; a value
    /// that it gives until then counts. A task that gives what another one gives has that one canceled.
    ///
    /// # Errors
    /// E131 if there is no such job, E137 if it is over, E138 if it has no such task, E599 if that is over;
    /// E300 if no engine is reached, E136 if none leads.
    pub async fn cancel_task(
        &self,
        job: &JobId,
        task: TaskIndex,
        how: &Cancellation,
    ) -> Result<(), ClientError> {
        self.cancel_task_of(&job.clone().into(), task, how).await
    }

    /// Cancels one task of the job of one submission.
    ///
    /// # Errors
    /// As [`cancel_task`](Self::cancel_task), E650 if another job has the name by now.
    #[doc(hidden)]
    pub async fn cancel_task_of(
        &self,
        job: &JobRef,
        task: TaskIndex,
        how: &Cancellation,
    ) -> Result<(), ClientError> {
        let grace_ms = u64::try_from(how.grace.as_millis()).unwrap_or(u64::MAX);
        // The failure of the task may have ended the job.
        self.retry_ending(
            |fault| matches!(fault, EngineFault::Over { .. }),
            |c| {
                let (job, reason) = (job.clone(), how.reason.clone());
                async move { c.cancel_task(within(CALL_TIMEOUT), job, task, reason, grace_ms).await }
            },
        )
        .await
    }

    /// Cancels a job as [`cancel`](Self::cancel), with a reason or another grace.
    ///
    /// # Errors
    /// E131 if there is no such job, E137 if it is over; E300 if no engine is reached, E136 if none leads.
    pub async fn cancel_with(&self, job: &JobId, how: &Cancellation) -> Result<(), ClientError> {
        self.cancel_job(&job.clone().into(), how).await
    }

    /// Cancels the job of one submission.
    ///
    /// # Errors
    /// As [`cancel_with`](Self::cancel_with), E650 if another job has the name by now, E139 if the job is
    /// damaged.
    #[doc(hidden)]
    pub async fn cancel_job(&self, job: &JobRef, how: &Cancellation) -> Result<(), ClientError> {
        let grace_ms = u64::try_from(how.grace.as_millis()).unwrap_or(u64::MAX);
        self.retry_ending(
            |fault| matches!(fault, EngineFault::Over { state, .. } if state == JobPhase::Canceled.word()),
            |c| {
                let (job, reason) = (job.clone(), how.reason.clone());
                async move { c.cancel(within(CALL_TIMEOUT), job, reason, grace_ms).await }
            },
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_rounded_up_however_large_it_is() {
        for (age, seconds) in [(Duration::ZERO, 0), (Duration::from_millis(1), 1), (Duration::MAX, u64::MAX)]
        {
            assert_eq!(whole_seconds(age), seconds);
        }
    }
}
