//! Answers the calls of clients.

use std::{collections::BTreeMap, time::Duration};

use syncline_rpc::{
    CheckpointParts, ClientService, Collected, EngineFault, FolderGc, Forgotten, InactiveReason, JobFolders,
    JobRecord, JobStream, ListedJobs, MAX_FRAME_BYTES, StreamCursor, StreamEntry, WorkerFields,
};
use syncline_scheduler::{
    core::{
        BarrierExplanation, Cancellation, Core, GraphSubmission, IfTaken, Input, Job, JobPhase,
        KeptExplanations, RequestedCheckpoint, Submission, TaskCancellation, TaskExplanation,
    },
    graph::TaskId,
    ids::{ContentDigest, JobId, JobRef, Superstep},
    spec::{JobSpec, TrainSpec},
    tasks::{GraphReceipt, GraphSpec, NewTask, TaskIndex, TaskQuery, TaskView, Value},
};
use tarpc::context::Context;
use tokio::time::Instant;

use super::{
    blob_gc::collect_blobs,
    context::ServiceContext,
    folder_gc::collect_folders,
    job_reading::{JOBS_PER_READ, no_checkpoint, phase_of},
    shard_notes::ShardProblem,
    worker_status::{WorkerStatus, count_processes, transports},
};
use crate::store::keys::JobKeys;

/// Longest wait for the end of a job in one call.
const MAX_JOB_WAIT: Duration = Duration::from_secs(60);
/// Longest time in which a full Redis takes what belongs to the end of a canceled job.
const MAX_END_WAIT: Duration = Duration::from_secs(60);
/// Most characters of a reason that are kept.
const MAX_REASON_CHARS: usize = 1_000;
/// Size of the jobs that one call shows, some ten thousand: half of what a frame holds.
const MAX_JOBS_BYTES: usize = MAX_FRAME_BYTES / 2;
/// Most values that one call gives, and most bytes of them but for the first: nothing else is decided while they
/// are copied.
const MAX_VALUES: usize = 1_000;
const MAX_VALUES_BYTES: usize = 1 << 20;
/// Most tasks that one call shows: whoever shows 10,000 asks for one more, to see whether there is any.
const MAX_VIEWS: u32 = 10_001;

/// Serves one client's connection.
#[derive(Clone)]
pub(super) struct ClientHandler {
    pub context: ServiceContext,
}

impl ClientService for ClientHandler {
    async fn shards(self, _: Context) -> Result<Vec<String>, EngineFault> {
        self.context.undisputed_lead()?;
        self.context.all_shards()
    }

    async fn submit(
        self,
        _: Context,
        spec: JobSpec,
        nonce: u32,
        if_taken: IfTaken,
    ) -> Result<u32, EngineFault> {
        spec.validate().map_err(|e| EngineFault::InvalidJob { code: e.code(), reason: e.to_string() })?;
        if let Some(there) = self.context.submitted_before(spec.clone(), Some(nonce), if_taken).await? {
            return Ok(there);
        }
        self.context.all_shards()?;
        if let Some((_, train)) = spec.train() {
            self.context.check_blobs(train.model.blobs().into()).await?;
        }
        let job = spec.id.clone();
        let submission = Input::Submit(Submission { spec: Box::new(spec), nonce, if_taken });
        self.context.commit_job(&job, submission).await?;
        let name = job.clone();
        let nonce =
            self.context.query(move |core| core.job(&name).map(|job| job.generation().nonce())).await?;
        // Somebody may have deleted it meanwhile.
        nonce.ok_or(EngineFault::UnknownJob { job })
    }

    async fn submitted_before(
        self,
        _: Context,
        spec: JobSpec,
        if_taken: IfTaken,
    ) -> Result<Option<u32>, EngineFault> {
        self.context.submitted_before(spec, None, if_taken).await
    }

    async fn submit_graph(
        self,
        _: Context,
        spec: GraphSpec,
        nonce: u32,
        if_taken: IfTaken,
    ) -> Result<GraphReceipt, EngineFault> {
        self.context.lead()?;
        let (job, digest) = (spec.id.clone(), spec.digest);
        // It may have run since, and its large arguments may be gone with the calls that took them.
        let id = job.clone();
        let there = move |core: &Core| core.graph_submitted_before(&id, digest, nonce, if_taken);
        if let Some(receipt) = self.context.query(there).await? {
            return Ok(receipt);
        }
        self.context.check_graph(&spec.classes, &spec.tasks).await?;
        let submission = GraphSubmission { spec: Box::new(spec), nonce, if_taken };
        self.context.commit_job(&job, Input::SubmitGraph(submission)).await?;
        let name = job.clone();
        let receipt = self.context.query(move |core| core.task_job(&name)?.receipt(digest)).await?;
        receipt.ok_or(EngineFault::UnknownJob { job })
    }

    async fn extend_graph(
        self,
        _: Context,
        job: JobId,
        nonce: u32,
        first: TaskIndex,
        tasks: Vec<NewTask>,
    ) -> Result<(), EngineFault> {
        self.context.lead()?;
        // Somebody else may have sent it too, and its large arguments may be gone with the calls that took
        // them.
        let (id, count) = (job.clone(), tasks.len());
        if self.context.query(move |core| core.has_part(&id, nonce, first, count)).await? {
            return Ok(());
        }
        self.context.check_graph(&[], &tasks).await?;
        self.context.commit_input(Input::ExtendGraph { job, nonce, first, tasks }).await.map(drop)
    }

    async fn check_blobs(self, _: Context, digests: Vec<ContentDigest>) -> Result<(), EngineFault> {
        self.context.lead()?;
        self.context.check_named_blobs(digests).await
    }

    async fn start_graph(self, _: Context, job: JobId, nonce: u32, count: u32) -> Result<(), EngineFault> {
        self.context.commit_input(Input::StartGraph { job, nonce, count }).await.map(drop)
    }

    async fn abandon_graph(self, _: Context, job: JobId, nonce: u32) -> Result<(), EngineFault> {
        self.context.commit_input(Input::AbandonGraph { job, nonce }).await.map(drop)
    }

    async fn pause(self, _: Context, job: JobId, paused: bool) -> Result<(), EngineFault> {
        self.context.commit_input(Input::Pause { job, paused }).await.map(drop)
    }

    async fn wait_job(self, _: Context, job: JobRef, wait_ms: u64) -> Result<bool, EngineFault> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms).min(MAX_JOB_WAIT);
        let mut active = self.context.active.clone();
        loop {
            active.mark_unchanged();
            let mut ends = self.context.lead()?.job_ends.watch();
            let phase = phase_of(&self.context.fields_of(&job).await?);
            let is_over = phase.is_some_and(JobPhase::is_over);
            if is_over || Instant::now() >= deadline {
                return Ok(is_over);
            }
            tokio::select! {
                _ = ends.ended(&job.id, deadline) => {}
                // Another engine leads, or this one again: who waited there waits anew.
                _ = active.changed() => {}
            }
        }
    }

    async fn values(
        self,
        _: Context,
        job: JobRef,
        tasks: Vec<TaskIndex>,
    ) -> Result<Vec<Option<Value>>, EngineFault> {
        let what = match &tasks[..] {
            [task] => format!("task {task}"),
            _ => "all of these tasks".to_owned(),
        };
        let look =
            move |core: &Core, job: &JobId| core.task_values(job, &tasks, MAX_VALUES, MAX_VALUES_BYTES);
        self.context.query_tasks(job, what, look).await
    }

    async fn ended_tasks(
        self,
        _: Context,
        job: JobRef,
        tasks: Vec<TaskIndex>,
    ) -> Result<Vec<TaskIndex>, EngineFault> {
        let what = "all of these tasks".to_owned();
        self.context.query_tasks(job, what, move |core, job| core.ended_tasks(job, &tasks)).await
    }

    async fn tasks(self, _: Context, job: JobRef, query: TaskQuery) -> Result<Vec<TaskView>, EngineFault> {
        let query = TaskQuery { limit: query.limit.min(MAX_VIEWS), ..query };
        let lead = self.context.lead()?;
        let (what, now_us) = ("general tasks".to_owned(), lead.clock.now_us());
        let (calls, stopping) = (lead.sessions.calls(), lead.sessions.stopping());
        let look = move |core: &Core, job: &JobId| {
            let mut views = core.task_views(job, &query, now_us)?;
            for (worker, (told_ms, calls)) in &calls {
                core.add_running(job, &mut views, (*worker, *told_ms, calls), now_us / 1_000);
            }
            core.add_stopping(job, &mut views, |worker| {
                stopping.get(&worker).map(|(count, names)| (*count, &names[..]))
            });
            Some(views)
        };
        self.context.query_tasks(job, what, look).await
    }

    async fn delete(self, _: Context, job: JobId) -> Result<(), EngineFault> {
        self.context.commit_freeing(Input::Delete(job)).await.map(drop)
    }

    async fn gc(self, _: Context, older_than_s: u64) -> Result<Collected, EngineFault> {
        let lead = self.context.lead()?;
        let _room = lead.store_outage.make_room()?;
        collect_blobs(&self.context.store, &lead, Duration::from_secs(older_than_s)).await
    }

    async fn gc_folders(
        self,
        _: Context,
        what: JobFolders,
        older_than_s: u64,
        gc: FolderGc,
    ) -> Result<Forgotten, EngineFault> {
        let lead = self.context.lead()?;
        let _room = lead.store_outage.make_room()?;
        collect_folders(&self.context.store, &lead, what, Duration::from_secs(older_than_s), gc).await
    }

    async fn request_checkpoint(self, _: Context, job: JobId) -> Result<u64, EngineFault> {
        let id = job.clone();
        let number = move |core: &Core| core.job(&id).map(Job::number_of_checkpoint_now);
        let number = self.context.query(number).await?;
        self.context.commit_input(Input::RequestCheckpoint(job)).await?;
        // Of a job that is not there no checkpoint was taken in.
        Ok(number.unwrap_or_default())
    }

    async fn has_checkpoint(self, _: Context, job: JobId, number: u64) -> Result<bool, EngineFault> {
        let id = job.clone();
        let look = move |core: &Core| core.job(&id).map(|job| job.requested_checkpoint(number));
        match self.context.query(look).await?.ok_or_else(|| EngineFault::UnknownJob { job: job.clone() })? {
            RequestedCheckpoint::Pending => Ok(false),
            RequestedCheckpoint::Complete => Ok(true),
            RequestedCheckpoint::GivenUp(reason) => Err(EngineFault::NoCheckpointNow { job, reason }),
        }
    }

    async fn checkpoint(
        self,
        _: Context,
        job: JobId,
        number: Option<u64>,
    ) -> Result<CheckpointParts, EngineFault> {
        let lead = self.context.lead()?;
        let read = self.context.read_training(&job, "checkpoints").await?;
        let Some(kept) = read.kept_checkpoint(number) else {
            return Err(no_checkpoint(&read, number));
        };
        let parts = lead.control.share_checkpoint(&kept.run, kept.resume.checkpoint, kept.bytes).await?;
        Ok(CheckpointParts { resume: kept.resume, parts })
    }

    async fn jobs(self, _: Context, most_over: Option<u32>) -> Result<ListedJobs, EngineFault> {
        let (listed, not_wanted) = self.context.jobs_to_show(most_over).await?;
        let (mut jobs, mut bytes, mut open) = (Vec::new(), 0, listed.len());
        'newest_first: for some in listed.rchunks(JOBS_PER_READ) {
            let read = self.context.fields_of_some(some).await?;
            for (job, fields) in some.iter().zip(read).rev() {
                let shown = match fields {
                    None => self.context.fields_of_lost(job).await?,
                    fields => fields,
                };
                bytes += shown.iter().flatten().map(|(name, value)| name.len() + value.len()).sum::<usize>();
                if bytes > MAX_JOBS_BYTES {
                    break 'newest_first;
                }
                open -= 1;
                jobs.extend(shown);
            }
        }
        jobs.reverse();
        Ok(ListedJobs { jobs, left_out: not_wanted.saturating_add(open as u32) })
    }

    async fn job(self, _: Context, job: JobRef) -> Result<JobRecord, EngineFault> {
        let mut fields = self.context.fields_of(&job).await?;
        let job = job.id;
        let workers: BTreeMap<String, String> = match phase_of(&fields) {
            Some(JobPhase::Damaged) => BTreeMap::new(),
            _ => {
                self.context
                    .read_of_job(&job, self.context.store.hash("read workers", &JobKeys::new(&job).workers))
                    .await?
            }
        };
        // A job of general tasks has none, and may be asked for while thousands of workers serve it.
        let live = if workers.is_empty() { Vec::new() } else { self.context.lead()?.sessions.all() };
        let members = || live.iter().filter(|seen| workers.contains_key(&seen.worker.to_string()));
        if let Some(transport) = transports(members()) {
            fields.insert("transport".to_owned(), transport);
        }
        let silent = members().filter_map(WorkerStatus::silence);
        let notes = self.context.notes(&job).into_iter().chain(silent).collect();
        Ok(JobRecord { job: fields, workers, notes })
    }

    async fn training(self, _: Context, job: JobId) -> Result<TrainSpec, EngineFault> {
        Ok(self.context.read_training(&job, "training").await?.spec().train().clone())
    }

    async fn stream(
        self,
        _: Context,
        job: JobId,
        stream: JobStream,
        after: Option<StreamCursor>,
    ) -> Result<Vec<StreamEntry>, EngineFault> {
        // An unknown job has no streams either, and says so.
        self.context.job_fields(&job).await?;
        let keys = JobKeys::new(&job);
        let key = match stream {
            JobStream::Events => keys.events,
            JobStream::Metrics => keys.metrics,
            JobStream::Evaluations => keys.evaluations,
        };
        self.context.read_of_job(&job, self.context.store.stream("read stream", &key, after)).await
    }

    async fn cancel(self, _: Context, job: JobRef, reason: String, grace_ms: u64) -> Result<(), EngineFault> {
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        let mut ends = self.context.lead()?.job_ends.watch();
        let cancellation = Cancellation { job: job.clone(), reason, grace_ms };
        let room = self.context.commit_freeing(Input::Cancel(cancellation)).await?;
        // Its end takes some commits, and only then it can be deleted.
        tokio::spawn(async move {
            ends.ended(&job.id, Instant::now() + MAX_END_WAIT).await;
            drop(room);
        });
        Ok(())
    }

    async fn cancel_task(
        self,
        _: Context,
        job: JobRef,
        task: TaskIndex,
        reason: String,
        grace_ms: u64,
    ) -> Result<(), EngineFault> {
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        let cancellation = TaskCancellation { job, task, reason, grace_ms };
        self.context.commit_input(Input::CancelTask(cancellation)).await.map(drop)
    }

    async fn explain_barrier(
        self,
        _: Context,
        job: JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, EngineFault> {
        let what = format!("barrier {barrier}");
        let read = self.context.read_training(&job, &what).await?;
        read.explain_barrier(barrier).ok_or_else(|| {
            let kept = read.which_barriers_are_kept();
            EngineFault::NothingKnown { job, what, kept }
        })
    }

    async fn explain_task(
        self,
        _: Context,
        job: JobId,
        task: TaskId,
    ) -> Result<TaskExplanation, EngineFault> {
        let what = format!("task {task}");
        let now_us = self.context.lead()?.clock.now_us();
        let read = self.context.read_training(&job, &what).await?;
        read.explain_task(&task, now_us).ok_or_else(|| {
            let kept = read.why_absent(&task);
            EngineFault::NothingKnown { job, what, kept }
        })
    }

    async fn explain_kept(self, _: Context, job: JobId) -> Result<KeptExplanations, EngineFault> {
        let now_us = self.context.lead()?.clock.now_us();
        Ok(self.context.read_training(&job, "iterations and barriers").await?.explain_kept(now_us))
    }

    async fn describe_engine(self, _: Context) -> Result<BTreeMap<String, String>, EngineFault> {
        let mut about = (*self.context.about).clone();
        let lead = match self.context.active.borrow().clone() {
            Ok(lead) => lead,
            Err(why) => {
                about.insert("idle".into(), why.to_string());
                match why.clone() {
                    InactiveReason::Standby { address, .. } => about.insert("leader".into(), address),
                    InactiveReason::Store { cause } => about.insert("store_problem".into(), cause),
                    InactiveReason::Loading(jobs) => {
                        about.insert("load_steps".into(), jobs.steps().to_string())
                    }
                    InactiveReason::StoreLoading { loaded_bytes, .. } => {
                        about.insert("store_problem".into(), why.to_string());
                        about.insert("redis_loaded_bytes".into(), loaded_bytes.to_string())
                    }
                    _ => None,
                };
                return Ok(about);
            }
        };
        let workers = lead.sessions.all();
        let shard_notes = self.context.shard_notes();
        let shards = |problem| shard_notes.iter().filter(|note| note.problem == problem).count().to_string();
        let problems: Vec<&str> = shard_notes.iter().map(|note| &*note.text).collect();
        // After a change of engines the number of the process is not known: 0.
        let pids: Vec<String> = workers.iter().map(|w| w.about.pid.to_string()).collect();
        let told = [
            ("now_ms", (lead.clock.now_us() / 1000).to_string()),
            ("epoch", lead.epoch.to_string()),
            ("shards_present", self.context.shards.all().len().to_string()),
            ("shard_problem", problems.join("; ")),
            ("shards_stopping", shards(ShardProblem::Stopping)),
            ("shards_missing", shards(ShardProblem::Missing)),
            ("shards_unreached", shards(ShardProblem::Unreached)),
            ("standby_problem", self.context.standby_notes().join("; ")),
            ("disk_problem", self.context.disk_notes().join("; ")),
            ("store_problem", lead.store_outage.cause().unwrap_or_default()),
            ("workers", count_processes(&workers).to_string()),
            ("worker_pids", pids.join(" ")),
        ];
        about.extend(told.map(|(name, value)| (name.to_owned(), value)));
        Ok(about)
    }

    async fn workers(self, _: Context) -> Result<Vec<WorkerFields>, EngineFault> {
        let mut seen = self.context.undisputed_lead()?.sessions.all();
        seen.sort_by_key(|seen| seen.worker);
        let fields = |seen: WorkerStatus| {
            let id = ("id".to_owned(), seen.worker.to_string());
            let named = seen.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
            named.chain([id]).collect()
        };
        Ok(seen.into_iter().map(fields).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::service::fake_shard::leading_engine;

    #[tokio::test]
    async fn an_engine_that_may_have_been_followed_says_so_instead_of_what_it_last_knew() {
        let engine = leading_engine().await;
        let (context, lead) = (&engine.context, &engine.lead);
        let workers = async || ClientHandler { context: context.clone() }.workers(Context::current()).await;
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));

        lead.store_outage.set_lead_until(now);
        assert_eq!(workers().await, Err(EngineFault::NotActive { why: InactiveReason::Changing }));
        let cause = "no answer to the lease".to_owned();
        lead.store_outage.set_lease_failure(Some(cause.clone()));
        assert_eq!(workers().await, Err(EngineFault::Store { cause }));
        lead.store_outage.set_lead_until(now + hour);
        assert_eq!(workers().await, Ok(Vec::new()), "nobody else can lead yet");
    }
}
