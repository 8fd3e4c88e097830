//! Calls of clients to the engine.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    core::{BarrierExplanation, KeptExplanations, TaskExplanation},
    fault_code::FaultCode,
    graph::TaskId,
    ids::{JobId, ShardIndex, Superstep},
    spec::{JobSpec, ResumeSpec, TrainSpec},
    tasks::{GraphReceipt, GraphSpec, NewTask, TaskIndex, TaskQuery, TaskState, TaskView, Value},
};

use super::shard::{Collected, Forgotten, JobFolders};

/// One job as Redis shows it: the fields of its `job` hash, see docs/redis-schema.md.
pub type JobFields = BTreeMap<String, String>;

/// Jobs as Redis shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedJobs {
    /// Newest last.
    pub jobs: Vec<JobFields>,
    /// Jobs that are over and that were not asked for, and the oldest of all where an answer cannot hold so many.
    pub left_out: u32,
}

/// One live worker as Redis shows it: `id`, such as `w3`, and the fields of its hash, see docs/redis-schema.md.
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

/// A stream that tells what a job has gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStream {
    /// What happened to it: `syncline:{JOB}:events`, the newest 200 entries.
    Events,
    /// Its loss curve: `syncline:{JOB}:metrics`, at most 400 points over the whole job.
    Metrics,
    /// Its evaluations: `syncline:{JOB}:evaluations`, at most 400 over the whole job.
    Evaluations,
}

/// A position in a stream: the moment of an entry, and its number within that millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamCursor {
    /// On Redis' clock, since the epoch of Unix.
    pub at_ms: u64,
    /// From 0, among the entries of that millisecond.
    pub number: u64,
}

impl fmt::Display for StreamCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_ms, self.number)
    }
}

/// A text that is no position in a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E148] `{text}` is no position such as 1764093600000-0, the `cursor` of an entry")]
pub struct InvalidCursor {
    text: String,
}

impl InvalidCursor {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E148"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl FromStr for StreamCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (at_ms, number) = text.split_once('-').unwrap_or((text, "0"));
        match (at_ms.parse(), number.parse()) {
            (Ok(at_ms), Ok(number)) => Ok(Self { at_ms, number }),
            _ => Err(InvalidCursor { text: text.to_owned() }),
        }
    }
}

/// One entry of a stream as Redis shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// Its id in Redis: given back as a cursor, it brings what came later.
    pub at: StreamCursor,
    /// Names and values as text; bytes that are no UTF-8 are replaced.
    pub fields: BTreeMap<String, String>,
}

/// Why an engine does not lead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum InactiveReason {
    /// It waits for the other's lead to end.
    #[error("it is on standby, engine {instance} at {address} leads")]
    Standby {
        /// Name of the engine that leads, as its lease says.
        instance: String,
        /// Where that one listens, as its lease says.
        address: String,
    },
    /// It could not take the lead, or not load the jobs; it tries again.
    #[error("Redis does not let it lead, it keeps trying: {cause}")]
    Store {
        /// What Redis said, or how it could not be reached.
        cause: String,
    },
    /// It takes the lead, gives it up, or ends.
    #[error("it starts, stops, or changes places with another; try again")]
    Changing,
}

/// Why the engine refused or could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum EngineFault {
    /// The graph or a setting is wrong; the text carries its own code.
    #[error("{0}")]
    InvalidJob(String),
    /// The id is taken by a job with other content, or by one that is damaged.
    #[error("[E130] job {job} exists already{differs}")]
    DuplicateJob {
        /// Id that was submitted.
        job: JobId,
        /// In what, in words that begin with a comma, such as `, and differs in epochs`.
        differs: String,
    },
    /// It was never submitted, was deleted, or has expired.
    #[error("[E131] there is no job {job}")]
    UnknownJob {
        /// Id that was asked for.
        job: JobId,
    },
    /// A submission names content that was never uploaded, or has been collected.
    #[error("[E132] blob {digest} is on none of the shards; upload it before submitting")]
    MissingBlob {
        /// BLAKE3 of the first that is missing, in hex.
        digest: String,
    },
    /// Not every shard is served, or the shard that calls was started for another number of them.
    #[error("[E133] only {present} of {expected} parameter shards are there")]
    MissingShards {
        /// Shards that are served; to a shard that is refused, the number for which it was started.
        present: u32,
        /// Shards that the engine was started with.
        expected: u32,
    },
    /// The worker's session has ended, or its number belongs to another worker by now.
    #[error("[E134] this incarnation was dropped; register again")]
    Dropped,
    /// Redis does not answer, refuses, or has lost the job, which is written again: nothing new is taken in.
    #[error("[E135] Redis does not do its part, the engine keeps trying: {cause}")]
    Store {
        /// What is wrong with it, in words.
        cause: String,
    },
    /// The call belongs to the engine that leads.
    #[error("[E136] this engine is not active: {why}")]
    NotActive {
        /// Why this one does not.
        why: InactiveReason,
    },
    /// What makes sense only while a job goes on was asked of one that has ended.
    #[error("[E137] job {job} is over ({state}): there is nothing to cancel, pause or resume")]
    Over {
        /// Job that has ended.
        job: JobId,
        /// How it ended: `done`, `failed` or `canceled`.
        state: String,
    },
    /// A task was to be canceled that has ended.
    #[error("[E599] task {task} of job {job} is over ({state}): there is nothing to cancel")]
    TaskOver {
        /// Job that it belongs to.
        job: JobId,
        /// Task that has ended.
        task: TaskIndex,
        /// How it ended.
        state: TaskState,
    },
    /// The job is there; what was asked for has not begun, is not kept any more, or never was.
    #[error("[E138] job {job} has no {what}{kept}")]
    NothingKnown {
        /// Job that was asked about.
        job: JobId,
        /// What was asked for, such as `barrier 7`.
        what: String,
        /// What there is instead, in words that begin with a semicolon; empty if that cannot be said.
        kept: String,
    },
    /// The records of the job are damaged or of another release, or engines have crashed at them.
    #[error("[E139] job {job} cannot be read: {cause}")]
    Unreadable {
        /// Job whose records they are.
        job: JobId,
        /// What is wrong with them, in words.
        cause: String,
    },
    /// A delete, or a submission with `replace`, met a job that goes on.
    #[error("[E140] job {job} is {state}: only a job that is over can be deleted or replaced")]
    NotOver {
        /// Job that goes on.
        job: JobId,
        /// Where it stands, in the word that Redis shows.
        state: String,
    },
    /// A checkpoint was asked for of what a job has learned so far, and cannot be made.
    #[error("[E638] no checkpoint of job {job} can be kept now: {reason}")]
    NoCheckpointNow {
        /// Job that goes on.
        job: JobId,
        /// In words.
        reason: String,
    },
    /// The training has completed none, has dropped them, or keeps others than the one asked for.
    #[error("[E146] job {job} has no complete checkpoint{wanted}{kept}")]
    NoCheckpoint {
        /// Training that was asked about.
        job: JobId,
        /// Number that was asked for, behind a blank; empty: the newest.
        wanted: String,
        /// What there is instead, or why there is none, in words that begin with a semicolon.
        kept: String,
    },
    /// A shard refused its part of what a client asked for, or did not answer in time.
    #[error("[E142] shard {shard} cannot do that: {cause}")]
    Shard {
        /// Position of that shard.
        shard: ShardIndex,
        /// What it said, or how long it was silent.
        cause: String,
    },
    /// A shard that is there does not say which blobs it keeps; it may be asked again.
    #[error("[E149] shard {shard} does not answer: {cause}")]
    SilentShard {
        /// Position of that shard.
        shard: ShardIndex,
        /// What became of the call, in words.
        cause: String,
    },
    /// To a process that announces itself: all places of the shard are held by others that answer.
    #[error("[E141] shard {shard} is served by another process, at {address}")]
    ShardTaken {
        /// Position that was announced.
        shard: ShardIndex,
        /// Where the process is that holds the place.
        address: String,
    },
    /// A new job was submitted, and what was taken in may need the rest of Redis's memory to come to its end.
    #[error(
        "[E603] Redis uses {:.1} MB of the {:.1} MB that it may, more than 90 %: no new job is taken in",
        megabytes(.used_bytes), megabytes(.limit_bytes)
    )]
    StoreNearlyFull {
        /// What it uses, as far as that counts toward its limit.
        used_bytes: u64,
        /// Its setting `maxmemory`.
        limit_bytes: u64,
    },
}

fn megabytes(bytes: &u64) -> f64 {
    *bytes as f64 / 1e6
}

impl EngineFault {
    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::InvalidJob(text) => return FaultCode::leading(text).unwrap_or(FaultCode::new("E027")),
            Self::DuplicateJob { .. } => "E130",
            Self::UnknownJob { .. } => "E131",
            Self::MissingBlob { .. } => "E132",
            Self::MissingShards { .. } => "E133",
            Self::Dropped => "E134",
            Self::Store { .. } => "E135",
            Self::NotActive { .. } => "E136",
            Self::Over { .. } => "E137",
            Self::NothingKnown { .. } => "E138",
            Self::TaskOver { .. } => "E599",
            Self::Unreadable { .. } => "E139",
            Self::NotOver { .. } => "E140",
            Self::ShardTaken { .. } => "E141",
            Self::Shard { .. } => "E142",
            Self::NoCheckpointNow { .. } => "E638",
            Self::NoCheckpoint { .. } => "E146",
            Self::SilentShard { .. } => "E149",
            Self::StoreNearlyFull { .. } => "E603",
        })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::InvalidJob(_) => "correct the job and submit it again; nothing was stored",
            Self::DuplicateJob { .. } => {
                "another job has this id: choose another one (`submit --new` takes the next that is free), or delete the old job once it is over: `syncline delete JOB`, `submit --replace`"
            }
            Self::UnknownJob { .. } => "`syncline jobs` lists the jobs",
            Self::MissingBlob { .. } => {
                "submit with `syncline submit` or `syncline::Client::submit`, which upload"
            }
            Self::MissingShards { .. } => "start the missing `syncline ps` processes, or wait for them",
            Self::Dropped => "nothing: the worker registers again by itself, under a new incarnation",
            Self::Store { .. } => "look at the Redis server; `syncline doctor` checks it",
            Self::StoreNearlyFull { .. } => {
                "free what old jobs hold, `syncline delete JOB`, or give Redis more: `redis-cli CONFIG SET maxmemory BYTES`; jobs that were \
                 taken in go on"
            }
            Self::NotActive { why: InactiveReason::Store { .. } } => {
                "look at the Redis server: it is what keeps the engine from leading; `syncline doctor` checks it"
            }
            Self::NotActive { .. } => {
                "name all engines, --engine A,B: whoever is active is asked; a standby takes over seconds after the active one is gone"
            }
            Self::Over { .. } => {
                "nothing needs to be done; `syncline delete JOB` forgets it and makes its id free, and a training that failed or was canceled \
                 goes on from its newest checkpoint with `syncline submit FILE --id NEW --resume JOB`"
            }
            Self::TaskOver { .. } => "nothing needs to be done; `syncline tasks JOB TASK` shows how it ended",
            Self::NothingKnown { .. } => {
                "`syncline status JOB` shows how far it is; tasks are named prepare/wN, it/wN/SEQ, barrier/N, clock/N, evaluation/N/PART or as in the job"
            }
            Self::NotOver { .. } => "cancel it first: `syncline cancel JOB`",
            Self::ShardTaken { .. } => {
                "give this process another --shard, or stop the other one; each shard is served by one process"
            }
            Self::NoCheckpointNow { .. } => {
                "`syncline status JOB` shows how far it is and what it keeps; without --now `syncline checkpoint JOB FILE` takes the newest that there is"
            }
            Self::NoCheckpoint { .. } => {
                "a training keeps that of its end only with `checkpoint` in its settings: `syncline status JOB` shows what it keeps, and the newest; \
                 of one that has none, `syncline model export JOB FILE.safetensors` writes what it has learned, with which another begins (`weights` of its model)"
            }
            // Redis may have gone back to a moment whose checkpoints have made room for newer ones.
            Self::Shard { cause, .. } if cause.starts_with("[E439]") => {
                "`syncline checkpoint JOB FILE --number N` takes another one that the shards have; where there is none, `syncline model export JOB \
                 FILE.safetensors` writes what it has learned, with which another begins (`weights` of its model)"
            }
            Self::Shard { .. } => "see the log of that shard",
            Self::SilentShard { .. } => {
                "see whether the machine, the disk and the connection of that shard are well, and its log; then submit again"
            }
            Self::Unreadable { cause, .. } if cause.starts_with("[E586]") => {
                "start engine and shards with that number and their old state directories, and the job goes on; delete nothing"
            }
            Self::Unreadable { cause, .. } if cause.starts_with("[E147]") => {
                "report it with the log of the engine; once that is mended, docs/failures.md says how the job is taken in again"
            }
            Self::Unreadable { .. } => {
                "another release wrote it, then use that one; or something else wrote into its keys, then `syncline delete` removes it"
            }
        };
        Some(hint.to_owned())
    }
}

/// A complete checkpoint of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointParts {
    /// What a training that goes on from it has to know, but for the optimizer's steps, which are in the parts.
    pub resume: ResumeSpec,
    /// Digests of the blobs with the parts of the shards, in order.
    pub parts: Vec<String>,
}

/// Calls of clients.
#[tarpc::service]
pub trait ClientService {
    /// Addresses of the parameter shards, where blobs are uploaded.
    async fn shards() -> Result<Vec<String>, EngineFault>;
    /// Acknowledged means committed in Redis. `nonce` is drawn by the caller. Gives the nonce of the job: another one if the
    /// same spec was submitted before, which is then that job, whether the shards are there or not. With `replace` a job of the
    /// same name that is over makes room, also one of the same spec, unless it has that nonce. So the call may be repeated.
    async fn submit(spec: JobSpec, nonce: u32, replace: bool) -> Result<u32, EngineFault>;
    /// Nonce of the job with which [`ClientService::submit`] would answer, because it is there already; `None`: it would be a new one, or is
    /// refused. Needs no shard.
    async fn submitted_before(spec: JobSpec, replace: bool) -> Result<Option<u32>, EngineFault>;
    /// A job of general tasks, or its first part, and what there is of it then. As [`ClientService::submit`] otherwise.
    async fn submit_graph(spec: GraphSpec, nonce: u32, replace: bool) -> Result<GraphReceipt, EngineFault>;
    /// A further part of a graph that was not complete; `first` is the index of its first task. May be repeated.
    async fn extend_graph(
        job: JobId,
        nonce: u32,
        first: TaskIndex,
        tasks: Vec<NewTask>,
    ) -> Result<(), EngineFault>;
    /// All `count` tasks have come: the job begins. May be repeated.
    async fn start_graph(job: JobId, nonce: u32, count: u32) -> Result<(), EngineFault>;
    /// Forgets a graph of which a part was sent with this nonce, unless it has begun or is gone.
    async fn abandon_graph(job: JobId, nonce: u32) -> Result<(), EngineFault>;
    /// Gives out no further general tasks of a job, or goes on with it. What workers have already goes on. May be repeated.
    async fn pause(job: JobId, paused: bool) -> Result<(), EngineFault>;
    /// Waits up to `wait_ms` for a job's end; says whether it is over.
    async fn wait_job(job: JobId, wait_ms: u64) -> Result<bool, EngineFault>;
    /// What a task gave; `None` while it has not ended.
    async fn value(job: JobId, task: TaskIndex) -> Result<Option<Value>, EngineFault>;
    /// Which of these tasks are over: done, failed, skipped or canceled.
    async fn ended_tasks(job: JobId, tasks: Vec<TaskIndex>) -> Result<Vec<TaskIndex>, EngineFault>;
    /// The tasks of a job that a query asks for, in their order.
    async fn tasks(job: JobId, query: TaskQuery) -> Result<Vec<TaskView>, EngineFault>;
    /// Removes a job that is over, or is damaged, with everything that is stored of it. Snapshot files stay.
    async fn delete(job: JobId) -> Result<(), EngineFault>;
    /// Removes blobs that no job names and that came, or were asked for, longer ago than this.
    async fn gc(older_than_s: u64) -> Result<Collected, EngineFault>;
    /// What folders the shards have of jobs that nobody knows any more, in which nothing was written for so long. Told to, they
    /// remove them.
    async fn gc_folders(what: JobFolders, older_than_s: u64, remove: bool) -> Result<Forgotten, EngineFault>;
    /// Has a checkpoint made of what a training has learned so far; its number. E638 if none can be made.
    async fn keep_checkpoint(job: JobId) -> Result<u64, EngineFault>;
    /// Whether that one is complete, or a later one; E638 if it does not come.
    async fn has_checkpoint(job: JobId, number: u64) -> Result<bool, EngineFault>;
    /// A complete checkpoint of a training, the newest or the one of this number: each shard keeps its part as a blob for
    /// a while, from where the caller fetches it.
    async fn checkpoint(job: JobId, number: Option<u64>) -> Result<CheckpointParts, EngineFault>;
    /// Every job that goes on, and the newest `most_over` of those that are over, without it all; newest last.
    async fn jobs(most_over: Option<u32>) -> Result<ListedJobs, EngineFault>;
    /// A job with its workers, as of the last commit, and what stands in the way of every job now.
    async fn job(job: JobId) -> Result<JobRecord, EngineFault>;
    /// The settings of a training.
    async fn training(job: JobId) -> Result<TrainSpec, EngineFault>;
    /// What was added to a stream of the job after an entry, oldest first; without one, all that is kept.
    async fn stream(
        job: JobId,
        stream: JobStream,
        after: Option<StreamCursor>,
    ) -> Result<Vec<StreamEntry>, EngineFault>;
    /// Ends a job. General tasks that run are told to stop, and given up after `grace_ms`; the job is over then, or when
    /// the last of them has ended.
    async fn cancel(job: JobId, reason: String, grace_ms: u64) -> Result<(), EngineFault>;
    /// Ends one general task, which fails. If it runs it is told to stop, and given up after `grace_ms`.
    async fn cancel_task(
        job: JobId,
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
    /// `store_problem` if there is any. If it is the active one `now_ms`, `epoch`, `shards_present`, `shard_problem`, `standby_problem`,
    /// `disk_problem`, `workers` and `worker_pids`; else `idle`, why it is not, and `leader`, the address of the one that is.
    async fn about() -> Result<BTreeMap<String, String>, EngineFault>;
    /// Every live worker, oldest first.
    async fn workers() -> Result<Vec<WorkerFields>, EngineFault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_for_a_checkpoint_that_shards_have_lost_is_told_what_there_is_instead() {
        let hint = |cause: &str| {
            EngineFault::Shard { shard: ShardIndex(0), cause: cause.to_owned() }.hint().unwrap()
        };
        let lost = hint("[E439] checkpoint 1 of job run cannot be used: no such file");
        assert!(lost.contains("syncline model export JOB"), "{lost}");
        assert_eq!(hint("no answer in 5 s"), "see the log of that shard");
    }

    #[test]
    fn deleting_is_advised_only_for_a_job_whose_records_are_damaged() {
        #[rustfmt::skip]
        let cases = [
            ("[E586] it lies on 2 parameter shards",         "start engine and shards with that number", false),
            ("[E147] the engine ended 3 times in a row",     "report it",                                false),
            ("[E030] the stored job `spec` cannot be read", "another release wrote it",                 true),
        ];
        for (cause, begin, deletes) in cases {
            let fault = EngineFault::Unreadable { job: "run".parse().unwrap(), cause: cause.to_owned() };
            let hint = fault.hint().unwrap();
            assert_eq!(
                (hint.starts_with(begin), hint.contains("syncline delete")),
                (true, deletes),
                "{hint}"
            );
        }
    }
}
