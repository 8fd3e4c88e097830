//! Calls of clients to the engine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    core::{BarrierExplanation, IfTaken, KeptExplanations, TaskExplanation},
    graph::TaskId,
    ids::{ContentDigest, JobId, JobRef, Superstep},
    spec::{JobSpec, ResumeSpec, TrainSpec},
    tasks::{GraphReceipt, GraphSpec, NewTask, TaskIndex, TaskQuery, TaskView, Value},
};

use super::{
    engine_fault::EngineFault,
    job_stream::{JobStream, StreamCursor, StreamEntry},
    shard::{Collected, FolderGc, Forgotten, JobFolders},
};

/// One job as Redis shows it: the fields of its `job` hash, see docs/redis-schema.md.
pub type JobFields = BTreeMap<String, String>;

/// Jobs as Redis shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedJobs {
    /// Newest last.
    pub jobs: Vec<JobFields>,
    /// Jobs that are over and that were not asked for, and the oldest of all where an answer cannot hold so
    /// many.
    pub left_out: u32,
}

/// One live worker as Redis shows it: `id`, such as `w3`, and the fields of its hash, see
/// docs/redis-schema.md.
pub type WorkerFields = BTreeMap<String, String>;

/// One job with its workers, as Redis shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its `job` hash with `id` and `problem`, and `transport` where live workers have told theirs.
    pub job: JobFields,
    /// Fields of each worker's record, by incarnation.
    pub workers: BTreeMap<String, String>,
    /// What stands in the way of every job right now, in words.
    pub notes: Vec<String>,
}

/// A complete checkpoint of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointParts {
    /// What a training that goes on from it has to know, but for the optimizer's steps, which are in the
    /// parts.
    pub resume: ResumeSpec,
    /// The blobs with the parts of the shards, in order.
    pub parts: Vec<ContentDigest>,
}

/// Calls of clients. Where a [`JobRef`] names the submission that made the job, another one of its name is
/// refused (E650).
#[tarpc::service]
pub trait ClientService {
    /// Addresses of the parameter shards, where blobs are uploaded.
    async fn shards() -> Result<Vec<String>, EngineFault>;
    /// Acknowledged means committed in Redis. `nonce` is drawn by the caller. Gives the nonce of the job:
    /// another one if the same spec was submitted before, which is then that job, whether the shards are
    /// there or not. [`IfTaken::Replace`]: a job of the same name that is over makes room, also one of the
    /// same spec, unless it has that nonce. So the call may be repeated.
    async fn submit(spec: JobSpec, nonce: u32, if_taken: IfTaken) -> Result<u32, EngineFault>;
    /// Nonce of the job with which [`ClientService::submit`] would answer, because it is there already;
    /// `None`: it would be a new one, or is refused. Needs no shard.
    async fn submitted_before(spec: JobSpec, if_taken: IfTaken) -> Result<Option<u32>, EngineFault>;
    /// A job of general tasks, or its first part, and what there is of it then. As [`ClientService::submit`]
    /// otherwise.
    async fn submit_graph(
        spec: GraphSpec,
        nonce: u32,
        if_taken: IfTaken,
    ) -> Result<GraphReceipt, EngineFault>;
    /// A further part of a graph that was not complete; `first` is the index of its first task. May be
    /// repeated.
    async fn extend_graph(
        job: JobId,
        nonce: u32,
        first: TaskIndex,
        tasks: Vec<NewTask>,
    ) -> Result<(), EngineFault>;
    /// Refuses blobs of which no shard keeps one (E132): before a job makes room for a graph in several parts,
    /// of which each names its own.
    async fn check_blobs(digests: Vec<ContentDigest>) -> Result<(), EngineFault>;
    /// All `count` tasks have come: the job begins. May be repeated.
    async fn start_graph(job: JobId, nonce: u32, count: u32) -> Result<(), EngineFault>;
    /// Forgets a graph of which a part was sent with this nonce, unless it has begun or is gone.
    async fn abandon_graph(job: JobId, nonce: u32) -> Result<(), EngineFault>;
    /// Gives out no further general tasks of a job, or goes on with it. What workers have already goes on.
    /// May be repeated.
    async fn pause(job: JobId, paused: bool) -> Result<(), EngineFault>;
    /// Waits up to `wait_ms` for a job's end; says whether it is over.
    async fn wait_job(job: JobRef, wait_ms: u64) -> Result<bool, EngineFault>;
    /// What tasks gave, in their order, `None` while one has not ended: of as many of the first of them as
    /// one answer holds, at least one.
    async fn values(job: JobRef, tasks: Vec<TaskIndex>) -> Result<Vec<Option<Value>>, EngineFault>;
    /// Which of these tasks are over: done, failed, skipped or canceled.
    async fn ended_tasks(job: JobRef, tasks: Vec<TaskIndex>) -> Result<Vec<TaskIndex>, EngineFault>;
    /// The tasks of a job that a query asks for, in their order.
    async fn tasks(job: JobRef, query: TaskQuery) -> Result<Vec<TaskView>, EngineFault>;
    /// Removes a job that is over, or is damaged, with everything that is stored of it. Snapshot files stay.
    async fn delete(job: JobId) -> Result<(), EngineFault>;
    /// Removes blobs that no job names and that came, or were asked for, longer ago than this.
    async fn gc(older_than_s: u64) -> Result<Collected, EngineFault>;
    /// What folders the shards have of jobs that nobody knows any more, in which nothing was written for so
    /// long.
    async fn gc_folders(what: JobFolders, older_than_s: u64, gc: FolderGc) -> Result<Forgotten, EngineFault>;
    /// Has a checkpoint made of what a training has learned so far; its number. E638 if none can be made.
    async fn request_checkpoint(job: JobId) -> Result<u64, EngineFault>;
    /// Whether that one is complete, or a later one; E638 if it does not come.
    async fn has_checkpoint(job: JobId, number: u64) -> Result<bool, EngineFault>;
    /// A complete checkpoint of a training, the newest or the one of this number: each shard keeps its part
    /// as a blob for a while, from where the caller fetches it.
    async fn checkpoint(job: JobId, number: Option<u64>) -> Result<CheckpointParts, EngineFault>;
    /// Every job that goes on, and the newest `most_over` of those that are over, without it all; newest
    /// last.
    async fn jobs(most_over: Option<u32>) -> Result<ListedJobs, EngineFault>;
    /// A job with its workers, as of the last commit, and what stands in the way of every job now.
    async fn job(job: JobRef) -> Result<JobRecord, EngineFault>;
    /// The settings of a training.
    async fn training(job: JobId) -> Result<TrainSpec, EngineFault>;
    /// What was added to a stream of the job after an entry, oldest first; without one, all that is kept.
    async fn stream(
        job: JobId,
        stream: JobStream,
        after: Option<StreamCursor>,
    ) -> Result<Vec<StreamEntry>, EngineFault>;
    /// Ends a job. General tasks that run are told to stop, and given up after `grace_ms`; the job is over
    /// then, or when the last of them has ended.
    async fn cancel(job: JobRef, reason: String, grace_ms: u64) -> Result<(), EngineFault>;
    /// Ends one general task, which fails. If it runs it is told to stop, and given up after `grace_ms`.
    async fn cancel_task(
        job: JobRef,
        task: TaskIndex,
        reason: String,
        grace_ms: u64,
    ) -> Result<(), EngineFault>;
    /// Why there is a barrier, whom it waits for, and what was expected of it.
    async fn explain_barrier(job: JobId, barrier: Superstep) -> Result<BarrierExplanation, EngineFault>;
    /// Why a task is in the state it is in.
    async fn explain_task(job: JobId, task: TaskId) -> Result<TaskExplanation, EngineFault>;
    /// Why each barrier and each task that is kept of a training is where it is, all as of one commit.
    async fn explain_kept(job: JobId) -> Result<KeptExplanations, EngineFault>;
    /// The engine about itself: `version`, `address`, `instance`, `redis` (without password), `shards`, and
    /// `store_problem` if there is any. If it is the active one `now_ms`, `epoch`, `shards_present`,
    /// `shard_problem` and how many it names of each kind, `shards_stopping`, `shards_missing` and
    /// `shards_unreached`, `standby_problem`, `disk_problem`, `workers` and `worker_pids`; else `idle`, why
    /// it is not, and `leader`, the address of the one that is.
    async fn describe_engine() -> Result<BTreeMap<String, String>, EngineFault>;
    /// Every live worker, oldest first.
    async fn workers() -> Result<Vec<WorkerFields>, EngineFault>;
}
