//! Why the engine refuses, or cannot answer.

use std::fmt;

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::{ContentDigest, JobId, ShardIndex},
    tasks::{TaskIndex, TaskState},
};

use super::{
    aof_failure::{AOF_HINT, is_aof_failure},
    cause::Cause,
};

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
    /// It has taken the lead and reads the jobs: it will answer when it has read all.
    #[error("{0}")]
    Loading(LoadedJobs),
    /// Redis was started and still reads its own files: it answers nothing else until then.
    #[error(
        "Redis does not let it lead yet, which still reads its file after its start: {loaded_bytes} of {total_bytes} bytes"
    )]
    StoreLoading {
        /// What it has read.
        loaded_bytes: u64,
        /// What it has to read, as it says.
        total_bytes: u64,
    },
    /// It takes the lead, gives it up, or ends.
    #[error("it starts, stops, or changes places with another; try again")]
    Changing,
}

/// How many of its jobs an engine that takes the lead has taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedJobs {
    /// In Redis they are its own from then on.
    pub claimed: u64,
    /// Begins when all are claimed.
    pub read: u64,
    /// All that there are.
    pub of: u64,
}

impl LoadedJobs {
    /// Grows with everything that is done.
    pub fn steps(&self) -> u64 {
        self.claimed + self.read
    }
}

impl fmt::Display for LoadedJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claimed, read, of } = self;
        match claimed < of {
            true => write!(f, "it takes the lead and its jobs over: {claimed} of {of}"),
            false => write!(f, "it reads its jobs: {read} of {of}"),
        }
    }
}

/// Why the engine refused or could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum EngineFault {
    /// The graph or a setting is wrong.
    #[error("{}", code.in_front_of(reason))]
    InvalidJob {
        /// Which rule it breaks.
        code: FaultCode,
        /// In words, which may begin with the code in brackets.
        reason: String,
    },
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
    /// The caller means the job of one submission, and another has its name by now.
    #[error("[E650] job {job} is another one by now: the one that was meant was replaced, or deleted")]
    Replaced {
        /// Id that was asked for.
        job: JobId,
    },
    /// A submission names content that was never uploaded, or has been collected.
    #[error("[E132] blob {digest} is on none of the shards; upload it before submitting")]
    MissingBlob {
        /// The first that is missing.
        digest: ContentDigest,
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
        /// What is wrong with them.
        cause: Cause,
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
        cause: Cause,
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
            Self::InvalidJob { code, .. } => return *code,
            Self::DuplicateJob { .. } => "E130",
            Self::UnknownJob { .. } => "E131",
            Self::Replaced { .. } => "E650",
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
            Self::InvalidJob { .. } => "correct the job and submit it again; nothing was stored",
            Self::DuplicateJob { .. } => {
                "another job has this id: choose another one (`submit --new` takes the next that is free), or delete the old job once it is over: `syncline delete JOB`, `submit --replace`"
            }
            Self::UnknownJob { .. } => "`syncline jobs` lists the jobs",
            Self::Replaced { .. } => {
                "`syncline status JOB` shows the one that has the name now, to which nothing was done; where both are needed, each gets an id of its own: `submit --new`, `submit_new_tasks`"
            }
            Self::MissingBlob { .. } => {
                "submit with `syncline submit` or `syncline::Client::submit`, which upload"
            }
            Self::MissingShards { .. } => "start the missing `syncline ps` processes, or wait for them",
            Self::Dropped => "nothing: the worker registers again by itself, under a new incarnation",
            Self::Store { cause } | Self::NotActive { why: InactiveReason::Store { cause } }
                if is_aof_failure(cause) =>
            {
                AOF_HINT
            }
            Self::Store { .. } => "look at the Redis server; `syncline doctor` checks it",
            Self::StoreNearlyFull { .. } => {
                "free what old jobs hold, `syncline delete JOB`, or give Redis more: `redis-cli CONFIG SET maxmemory BYTES`; jobs that were \
                 taken in go on"
            }
            Self::NotActive { why: InactiveReason::Store { .. } } => {
                "look at the Redis server: it is what keeps the engine from leading; `syncline doctor` checks it"
            }
            Self::NotActive { why: InactiveReason::Loading(_) | InactiveReason::StoreLoading { .. } } => {
                "nothing needs to be done: it answers as soon as everything is read; ask again then"
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
            Self::Shard { cause, .. } if cause.code == Some(FaultCode::CHECKPOINT_UNUSABLE) => {
                "`syncline checkpoint JOB FILE --number N` takes another one that the shards have; where there is none, `syncline model export JOB \
                 FILE.safetensors` writes what it has learned, with which another begins (`weights` of its model)"
            }
            Self::Shard { .. } => "see the log of that shard",
            Self::SilentShard { .. } => {
                "see whether the machine, the disk and the connection of that shard are well, and its log; then submit again"
            }
            Self::Unreadable { cause, .. } if cause.code == Some(FaultCode::OTHER_SHARDS) => {
                "start engine and shards with that number and their old state directories, and the job goes on; delete nothing"
            }
            Self::Unreadable { cause, .. } if cause.code == Some(FaultCode::RETURNED) => {
                "`syncline delete JOB` removes it, as where it was deleted before; if it is to go on, start the engine again, which takes in what Redis has"
            }
            Self::Unreadable { cause, .. } if cause.code == Some(FaultCode::CRASHES) => {
                "report it with the log of the engine; once that is mended, docs/failures.md says how the job is taken in again"
            }
            Self::Unreadable { .. } => {
                "another release wrote it, then use that one; or something else wrote into its keys, then `syncline delete` removes it"
            }
        };
        Some(hint.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_for_a_checkpoint_that_shards_have_lost_is_told_what_there_is_instead() {
        let hint = |cause: Cause| EngineFault::Shard { shard: ShardIndex(0), cause }.hint().unwrap();
        let lost = hint(Cause::new("E439", &"checkpoint 1 of job run cannot be used: no such file"));
        assert!(lost.contains("syncline model export JOB"), "{lost}");
        assert_eq!(hint("no answer in 5 s".into()), "see the log of that shard");
    }

    #[test]
    fn an_invalid_job_has_its_code_beside_the_words_and_names_it_once() {
        let fault = |reason: &str| EngineFault::InvalidJob { code: "E050".into(), reason: reason.to_owned() };
        for reason in ["[E050] the part begins with task 7", "the part begins with task 7"] {
            assert_eq!(fault(reason).to_string(), "[E050] the part begins with task 7");
        }
        assert_eq!(fault("[E027] batch is 0").code(), "E050", "no code is read from the words");
    }

    #[test]
    fn a_redis_whose_append_only_file_failed_does_not_take_writes_again_by_itself_and_the_hint_says_what_helps()
     {
        let hints = |cause: &str| {
            let cause = || cause.to_owned();
            let why = InactiveReason::Store { cause: cause() };
            [EngineFault::Store { cause: cause() }, EngineFault::NotActive { why }].map(|f| f.hint().unwrap())
        };
        let failed = hints(
            "[E201] redis does not do `commit` for now: MISCONF Errors writing to the AOF file: I/O error",
        );
        assert!(failed.iter().all(|hint| hint.contains("BGREWRITEAOF")), "{failed:?}");
        let away = hints("[E201] redis does not do `commit` for now: no answer within 3 s");
        assert!(!away.iter().any(|hint| hint.contains("BGREWRITEAOF")), "{away:?}");
    }

    #[test]
    fn deleting_is_advised_only_for_a_job_whose_records_are_damaged() {
        #[rustfmt::skip]
        let cases = [
            ("E586", "it lies on 2 parameter shards",        "start engine and shards with that number", false),
            ("E670", "this engine does not know it",         "`syncline delete JOB` removes it",         true),
            ("E147", "the engine ended 3 times in a row",    "report it",                                false),
            ("E030", "the stored job `spec` cannot be read", "another release wrote it",                 true),
        ];
        for (code, reason, begin, deletes) in cases {
            let cause = Cause::new(code, &reason);
            let fault = EngineFault::Unreadable { job: "run".parse().unwrap(), cause };
            let hint = fault.hint().unwrap();
            assert_eq!(
                (hint.starts_with(begin), hint.contains("syncline delete")),
                (true, deletes),
                "{hint}"
            );
        }
    }
}
