//! Answers the calls of clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use syncline_rpc::{
    CheckpointParts, ClientService, Collected, EngineFault, InactiveReason, JobFields, JobRecord, JobStream,
    StreamCursor, StreamEntry, WorkerFields,
};
use syncline_scheduler::{
    core::{
        BarrierExplanation, Cancellation, GraphSubmission, Input, Job, KeptExplanations, Submission,
        TaskExplanation,
    },
    graph::TaskId,
    ids::{JobId, Superstep},
    spec::JobSpec,
    tasks::{GraphReceipt, GraphSpec, NewTask, TaskIndex, TaskQuery, TaskView, Value},
};
use tarpc::context::Context;
use tokio::time::Instant;

use super::{
    blob_gc::collect_blobs,
    context::ServiceContext,
    damaged_jobs::Damage,
    worker_status::{WorkerStatus, count_processes, transports},
};
use crate::store::keys::JobKeys;

/// Longest wait for the end of a job in one call.
const MAX_JOB_WAIT: Duration = Duration::from_secs(60);
/// Most characters of a reason that are kept.
const MAX_REASON_CHARS: usize = 1_000;
/// Most tasks that one call shows.
const MAX_VIEWS: u32 = 10_000;

/// Serves one client's connection.
#[derive(Clone)]
pub(super) struct ClientHandler(pub ServiceContext);

impl ClientHandler {
    /// The fields of a job for people, with what hinders it.
    async fn fields(&self, job: &JobId) -> Result<JobFields, EngineFault> {
        match self.stored_fields(job).await? {
            Some(fields) => Ok(fields),
            None if self.is_live(job).await? => Err(EngineFault::Store { cause: written_again(job) }),
            None => Err(EngineFault::UnknownJob { job: job.clone() }),
        }
    }

    /// All jobs: those that Redis lists, and those that somebody has taken off its list, which are listed again soon.
    async fn listed(&self) -> Result<Vec<JobId>, EngineFault> {
        let known = self.0.dispatcher()?.listed();
        let read = async {
            match self.0.store.jobs().await {
                // Something else in the place of the list is no reason not to show the jobs.
                Err(error) if error.is_of_keys() => Ok(Vec::new()),
                read => read,
            }
        };
        let mut listed = self.0.read_store(read).await?;
        let seen: BTreeSet<JobId> = listed.iter().cloned().collect();
        listed.extend(known.into_iter().filter(|job| !seen.contains(job)));
        Ok(listed)
    }

    /// Whether a job goes on, whatever Redis has of it.
    async fn is_live(&self, job: &JobId) -> Result<bool, EngineFault> {
        let name = job.clone();
        self.0.query(move |core| core.is_live(&name)).await
    }

    /// The same, as far as Redis has any.
    async fn stored_fields(&self, job: &JobId) -> Result<Option<JobFields>, EngineFault> {
        // On standby nobody knows what is wrong with a job, and whether anything is.
        let mut fields = match self.0.dispatcher()?.damaged(job) {
            // What its own record says may be anything: it is not even read.
            Some(damage) => damaged_fields(job, &damage),
            None => {
                match self.0.read_of_job(job, self.0.store.hash("read job", &JobKeys::new(job).job)).await {
                    // What goes on here finds it with its next commit; what is over is left as it is.
                    Err(EngineFault::Unreadable { cause, .. }) => {
                        damaged_fields(job, &Damage::Records(cause))
                    }
                    fields => fields?,
                }
            }
        };
        if fields.is_empty() {
            return Ok(None);
        }
        let problem = match fields.get("state").is_some_and(|state| is_over(state)) {
            true => String::new(),
            false => self.0.notes().join("; "),
        };
        fields.extend([("id".to_owned(), job.to_string()), ("problem".to_owned(), problem)]);
        Ok(Some(fields))
    }

    /// A job that trains, as of its last commit; a job of general tasks has nothing of `what`.
    async fn read(&self, id: &JobId, what: &str) -> Result<Job, EngineFault> {
        let stored = self.0.read_of_job(id, self.0.store.read(id)).await?;
        if stored.spec.is_empty() {
            return Err(EngineFault::UnknownJob { job: id.clone() });
        }
        if stored.holds_tasks() {
            let kept = "; it is one of general tasks, which `syncline tasks` lists".to_owned();
            return Err(EngineFault::NothingKnown { job: id.clone(), what: what.to_owned(), kept });
        }
        Job::load(&stored).map_err(|e| EngineFault::Unreadable { job: id.clone(), cause: e.to_string() })
    }

    /// Why the active engine does not know a job, or something of it.
    async fn absence(&self, job: &JobId, what: String) -> EngineFault {
        let damaged = self.0.dispatcher().map(|dispatcher| dispatcher.damaged(job));
        match (damaged, self.fields(job).await) {
            (Err(fault), _) | (_, Err(fault)) => fault,
            (Ok(Some(damage)), _) => EngineFault::Unreadable { job: job.clone(), cause: damage.to_string() },
            (Ok(None), Ok(fields)) => {
                let trains = fields.get("kind").is_none_or(|kind| kind != "tasks");
                let kept = if trains { "; it trains, which `syncline explain` tells about" } else { "" };
                EngineFault::NothingKnown { job: job.clone(), what, kept: kept.to_owned() }
            }
        }
    }
}

/// What is wrong with a job that goes on and that Redis does not have.
fn written_again(job: &JobId) -> String {
    format!("it has lost job {job}, which is written again")
}

/// What is shown of a job that cannot be read.
fn damaged_fields(job: &JobId, damage: &Damage) -> JobFields {
    let (id, reason) = (job.to_string(), damage.to_string());
    let fields = [("id", &*id), ("state", "damaged"), ("code", damage.code()), ("reason", &*reason)];
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Whether nothing can follow in a job of this state.
fn is_over(state: &str) -> bool {
    ["done", "failed", "canceled", "damaged"].contains(&state)
}

impl ClientService for ClientHandler {
    async fn shards(self, _: Context) -> Result<Vec<String>, EngineFault> {
        self.0.dispatcher()?;
        self.0.all_shards()
    }

    async fn submit(self, _: Context, spec: JobSpec, nonce: u32, replace: bool) -> Result<u32, EngineFault> {
        spec.validate().map_err(|e| EngineFault::InvalidJob(e.to_string()))?;
        self.0.dispatcher()?;
        self.0.all_shards()?;
        if let Some((_, train)) = spec.train() {
            self.0.check_blobs(train.model.blobs().map(|d| (*d).to_owned()).into()).await?;
        }
        let job = spec.id.clone();
        self.0.commit_input(Input::Submit(Submission { spec: Box::new(spec), nonce, replace })).await?;
        let name = job.clone();
        let nonce = self.0.query(move |core| core.job(&name).map(|job| job.generation().nonce())).await?;
        // Somebody may have deleted it meanwhile.
        nonce.ok_or(EngineFault::UnknownJob { job })
    }

    async fn submit_graph(
        self,
        _: Context,
        spec: GraphSpec,
        nonce: u32,
        replace: bool,
    ) -> Result<GraphReceipt, EngineFault> {
        self.0.dispatcher()?;
        self.0.check_graph(&spec.classes, &spec.tasks).await?;
        let (job, digest) = (spec.id.clone(), spec.digest);
        let submission = GraphSubmission { spec: Box::new(spec), nonce, replace };
        self.0.commit_input(Input::SubmitGraph(submission)).await?;
        let name = job.clone();
        let receipt = self.0.query(move |core| core.task_job(&name)?.receipt(digest)).await?;
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
        self.0.dispatcher()?;
        self.0.check_graph(&[], &tasks).await?;
        self.0.commit_input(Input::ExtendGraph { job, nonce, first, tasks }).await.map(drop)
    }

    async fn start_graph(self, _: Context, job: JobId, nonce: u32, count: u32) -> Result<(), EngineFault> {
        self.0.commit_input(Input::StartGraph { job, nonce, count }).await.map(drop)
    }

    async fn pause(self, _: Context, job: JobId, paused: bool) -> Result<(), EngineFault> {
        self.0.commit_input(Input::Pause { job, paused }).await.map(drop)
    }

    async fn wait_job(self, _: Context, job: JobId, wait_ms: u64) -> Result<bool, EngineFault> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms).min(MAX_JOB_WAIT);
        let mut active = self.0.active.clone();
        loop {
            active.mark_unchanged();
            let mut ends = self.0.dispatcher()?.job_ends.watch();
            let is_over = self.fields(&job).await?.get("state").is_some_and(|state| is_over(state));
            if is_over || Instant::now() >= deadline {
                return Ok(is_over);
            }
            tokio::select! {
                _ = ends.ended(&job, deadline) => {}
                // Another engine leads, or this one again: who waited there waits anew.
                _ = active.changed() => {}
            }
        }
    }

    async fn value(self, _: Context, job: JobId, task: TaskIndex) -> Result<Option<Value>, EngineFault> {
        let name = job.clone();
        match self.0.query(move |core| core.task_value(&name, task)).await? {
            Some(value) => Ok(value),
            None => Err(self.absence(&job, format!("task {task}")).await),
        }
    }

    async fn tasks(self, _: Context, job: JobId, query: TaskQuery) -> Result<Vec<TaskView>, EngineFault> {
        let (name, query) = (job.clone(), TaskQuery { limit: query.limit.min(MAX_VIEWS), ..query });
        let now_us = self.0.dispatcher()?.clock.now_us();
        match self.0.query(move |core| core.task_views(&name, &query, now_us)).await? {
            Some(views) => Ok(views),
            None => Err(self.absence(&job, "general tasks".to_owned()).await),
        }
    }

    async fn delete(self, _: Context, job: JobId) -> Result<(), EngineFault> {
        self.0.commit_input(Input::Delete(job)).await.map(drop)
    }

    async fn gc(self, _: Context, older_than_s: u64) -> Result<Collected, EngineFault> {
        let dispatcher = self.0.dispatcher()?;
        collect_blobs(&self.0.store, &dispatcher, Duration::from_secs(older_than_s)).await
    }

    async fn checkpoint(
        self,
        _: Context,
        job: JobId,
        number: Option<u64>,
    ) -> Result<CheckpointParts, EngineFault> {
        let dispatcher = self.0.dispatcher()?;
        let read = self.read(&job, "checkpoints").await?;
        let Some(kept) = read.kept_checkpoint(number) else {
            let wanted = number.map(|number| format!(" {number}")).unwrap_or_default();
            let all = read.checkpoint_numbers().iter().map(u64::to_string).collect::<Vec<_>>();
            let keeps = read.spec().train().checkpoint.is_some();
            let kept = match (all.is_empty(), keeps) {
                (false, _) => format!("; it has {}", all.join(", ")),
                (true, false) => "; its settings have no `checkpoint`".to_owned(),
                (true, true) if read.phase().is_over() => format!("; it is {}", read.phase().shown()),
                (true, true) => "; the first is still to come".to_owned(),
            };
            return Err(EngineFault::NoCheckpoint { job, wanted, kept });
        };
        let parts = dispatcher.share_checkpoint(&kept.run, kept.resume.checkpoint).await?;
        Ok(CheckpointParts { resume: kept.resume, parts })
    }

    async fn jobs(self, _: Context) -> Result<Vec<JobFields>, EngineFault> {
        let mut all = Vec::new();
        for job in self.listed().await? {
            match self.stored_fields(&job).await? {
                Some(fields) => all.push(fields),
                None => match self.is_live(&job).await {
                    Ok(true) => all.push(damaged_fields(&job, &Damage::Records(written_again(&job)))),
                    Ok(false) => {}
                    // It comes just now, or Redis has lost it: the others are shown in any case.
                    Err(EngineFault::Store { cause }) => {
                        let problem = format!("Redis has nothing of it, and takes no writes: {cause}");
                        all.push(damaged_fields(&job, &Damage::Records(problem)));
                    }
                    Err(fault) => return Err(fault),
                },
            }
        }
        Ok(all)
    }

    async fn job(self, _: Context, job: JobId) -> Result<JobRecord, EngineFault> {
        let mut fields = self.fields(&job).await?;
        let damaged = fields.get("state").is_some_and(|state| state == "damaged");
        let workers: BTreeMap<String, String> = match damaged {
            true => BTreeMap::new(),
            false => {
                self.0
                    .read_of_job(&job, self.0.store.hash("read workers", &JobKeys::new(&job).workers))
                    .await?
            }
        };
        // A job of general tasks has none, and may be asked for while thousands of workers serve it.
        let live = if workers.is_empty() { Vec::new() } else { self.0.dispatcher()?.sessions.all() };
        let members = || live.iter().filter(|seen| workers.contains_key(&seen.worker.to_string()));
        if let Some(transport) = transports(members()) {
            fields.insert("transport".to_owned(), transport);
        }
        let silent = members().filter_map(WorkerStatus::silence);
        let notes = self.0.notes().into_iter().chain(silent).collect();
        Ok(JobRecord { job: fields, workers, notes })
    }

    async fn stream(
        self,
        _: Context,
        job: JobId,
        stream: JobStream,
        after: Option<StreamCursor>,
    ) -> Result<Vec<StreamEntry>, EngineFault> {
        // An unknown job has no streams either, and says so.
        self.fields(&job).await?;
        let keys = JobKeys::new(&job);
        let key = match stream {
            JobStream::Events => keys.events,
            JobStream::Metrics => keys.metrics,
            JobStream::Evaluations => keys.evaluations,
        };
        self.0.read_of_job(&job, self.0.store.stream("read stream", &key, after)).await
    }

    async fn cancel(self, _: Context, job: JobId, reason: String, grace_ms: u64) -> Result<(), EngineFault> {
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        self.0.commit_input(Input::Cancel(Cancellation { job, reason, grace_ms })).await.map(drop)
    }

    async fn explain_barrier(
        self,
        _: Context,
        job: JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, EngineFault> {
        let what = format!("barrier {barrier}");
        let read = self.read(&job, &what).await?;
        read.explain_barrier(barrier).ok_or_else(|| {
            let kept = read.barriers_kept();
            let kept = kept.map(|(first, last)| format!("; barriers {first} to {last} are kept"));
            EngineFault::NothingKnown { job, what, kept: kept.unwrap_or_default() }
        })
    }

    async fn explain_task(
        self,
        _: Context,
        job: JobId,
        task: TaskId,
    ) -> Result<TaskExplanation, EngineFault> {
        let what = format!("task {task}");
        let now_us = self.0.dispatcher()?.clock.now_us();
        let read = self.read(&job, &what).await?;
        read.explain_task(&task, now_us).ok_or_else(|| {
            let kept = read.why_absent(&task);
            EngineFault::NothingKnown { job, what, kept }
        })
    }

    async fn explain_kept(self, _: Context, job: JobId) -> Result<KeptExplanations, EngineFault> {
        let now_us = self.0.dispatcher()?.clock.now_us();
        Ok(self.read(&job, "iterations and barriers").await?.explain_kept(now_us))
    }

    async fn about(self, _: Context) -> Result<BTreeMap<String, String>, EngineFault> {
        let mut about = (*self.0.about).clone();
        let dispatcher = match self.0.active.borrow().clone() {
            Ok(dispatcher) => dispatcher,
            Err(why) => {
                about.insert("idle".into(), why.to_string());
                match why {
                    InactiveReason::Standby { address, .. } => about.insert("leader".into(), address),
                    InactiveReason::Store { cause } => about.insert("store_problem".into(), cause),
                    _ => None,
                };
                return Ok(about);
            }
        };
        let workers = dispatcher.sessions.all();
        // After a change of engines the number of the process is not known: 0.
        let pids: Vec<String> = workers.iter().map(|w| w.about.pid.to_string()).collect();
        let told = [
            ("now_ms", (dispatcher.clock.now_us() / 1000).to_string()),
            ("epoch", dispatcher.epoch.to_string()),
            ("shards_present", self.0.shards.all().len().to_string()),
            ("shard_problem", self.0.shard_notes().join("; ")),
            ("store_problem", dispatcher.store_outage.cause().unwrap_or_default()),
            ("workers", count_processes(&workers).to_string()),
            ("worker_pids", pids.join(" ")),
        ];
        about.extend(told.map(|(name, value)| (name.to_owned(), value)));
        Ok(about)
    }

    async fn workers(self, _: Context) -> Result<Vec<WorkerFields>, EngineFault> {
        let mut seen = self.0.dispatcher()?.sessions.all();
        seen.sort_by_key(|seen| seen.worker);
        let fields = |seen: WorkerStatus| {
            let id = ("id".to_owned(), seen.worker.to_string());
            let named = seen.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
            named.chain([id]).collect()
        };
        Ok(seen.into_iter().map(fields).collect())
    }
}
