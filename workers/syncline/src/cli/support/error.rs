//! What can go wrong on the command line itself.

use std::{io, net::SocketAddr, path::PathBuf};

use syncline_kit::said_last;
use syncline_rpc::{folder::NotOurs, threads::NoThread};
use syncline_scheduler::ids::JobId;
use syncline_workers::client::FindError;

use crate::cli::Exit;

/// What can go wrong on the command line itself. Codes are stable, see docs/errors.md.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// Anybody who reaches that address could train and read models.
    #[error("[E501] {address} can be reached from other machines, and no token file was named")]
    OpenBind { address: SocketAddr },
    #[error("[E502] cannot use {path}")]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("[E503] another `syncline up` (process {pid}) runs on {dir}")]
    Running { dir: PathBuf, pid: String },
    #[error("[E504] {name} ended with {status} before the cluster was ready; {}", said_last(.log, .tail))]
    ChildEnded { name: String, status: String, log: PathBuf, tail: String, exit: Exit },
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("[E508] the cluster was not ready within {after_s} s: {missing}")]
    NotReady { after_s: u64, missing: String },
    #[error("[E509] {what}")]
    Setting { what: String },
    #[error("[E510] cannot write to stdout")]
    Output {
        #[source]
        source: io::Error,
    },
    #[error("[E513] cannot start the runtime")]
    Runtime {
        #[source]
        source: io::Error,
    },
    #[error("[E514] {failed} of {checks} checks failed")]
    Unhealthy { failed: usize, checks: usize, exit: Exit },
    #[error("[E516] {dir} holds saved jobs of {before} shards ({jobs}), and --shards says {told}")]
    SavedJobs { dir: PathBuf, jobs: String, before: u32, told: u32 },
    #[error(
        "[E601] {blobs} holds models, weights or values of jobs, and --shards {told} leaves that shard out"
    )]
    LeftOutBlobs { blobs: PathBuf, before: u32, told: u32 },
    #[error("[E518] {path} cannot be understood")]
    DamagedAddresses {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("[E579] {dir} holds saved jobs ({jobs}) of {before}, and this start uses {told}")]
    OtherRedis { dir: PathBuf, jobs: String, before: String, told: String },
    #[error("[E580] shards hold saved jobs ({jobs}), and the Redis that knows them has nothing in {dir}")]
    RedisGone { dir: PathBuf, jobs: String },
    #[error("[E641] {redis} holds {jobs} of another cluster, whose engine {instance} at {address} led last")]
    JobsOfOthers { redis: String, jobs: String, instance: String, address: String },
    #[error("[E519] cannot measure PyTorch with {python}: {what}")]
    Torch { python: PathBuf, what: String },
    #[error("[E520] cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("[E574] cannot write {path}")]
    Written {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("[E576] another `syncline metrics` writes to {path}")]
    FolderTaken { path: PathBuf },
    #[error("[E575] job {job} computes tasks and trains nothing itself: it has no loss curve")]
    NoTraining { job: JobId },
    #[error("[E584] job {job} is there already and is not this trial ({values}){differs}")]
    OtherTrial { job: JobId, differs: String, values: String },
    #[error("[E585] none of the {trials} trials of sweep {name} came to its end with a result")]
    NoBest { name: String, trials: usize },
    #[error("[E588] no trial of the sweep is there: no job is called {prefix}-1, {prefix}-2, ...")]
    NoTrials { prefix: String },
    #[error("[E515] the engine has a bug: {reason}")]
    Bug { reason: String },
}

impl CliError {
    /// The exit code of a command that ends with this.
    pub fn exit(&self) -> Exit {
        match self {
            Self::OpenBind { .. } | Self::Listen { .. } | Self::Setting { .. } => Exit::Usage,
            Self::Find(FindError::NoCluster { .. }) => Exit::Unreachable,
            Self::Path { source, .. } | Self::Find(FindError::Path { source, .. })
                if NotOurs::is_behind(source) =>
            {
                Exit::Usage
            }
            Self::Find(FindError::Path { .. }) => Exit::Internal,
            Self::Find(_) => Exit::Usage,
            Self::Running { .. } | Self::SavedJobs { .. } | Self::LeftOutBlobs { .. } => Exit::Usage,
            Self::OtherRedis { .. } | Self::RedisGone { .. } | Self::JobsOfOthers { .. } => Exit::Usage,
            Self::Torch { .. } | Self::NoTraining { .. } => Exit::Usage,
            Self::Written { .. } | Self::FolderTaken { .. } => Exit::Usage,
            Self::OtherTrial { .. } | Self::NoBest { .. } | Self::NoTrials { .. } => Exit::JobFailed,
            Self::Unhealthy { exit, .. } | Self::ChildEnded { exit, .. } => *exit,
            Self::Path { .. }
            | Self::DamagedAddresses { .. }
            | Self::NotReady { .. }
            | Self::Output { .. }
            | Self::Runtime { .. }
            | Self::Bug { .. } => Exit::Internal,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::OpenBind { .. } => "make a token file, give it to every process with --token-file, or listen on 127.0.0.1".into(),
            Self::Path { source, .. } if NotOurs::is_behind(source) => NotOurs::HINT.into(),
            Self::Path { .. } => "see whether it exists, belongs to you, and the disk has room; --state-dir names another folder".into(),
            Self::Running { dir, .. } => {
                format!("use the running cluster, stop it with Ctrl-C, or name another --state-dir than {}", dir.display())
            }
            Self::ChildEnded { tail, .. } if tail.trim().is_empty() => {
                "where a signal ended it, see whether the machine ran out of memory; with SYNCLINE_LOG=debug it says more".into()
            }
            Self::ChildEnded { log, .. } => format!("correct what it says, then start again; {} holds everything", log.display()),
            Self::Find(error) => error.hint().unwrap_or_default(),
            Self::NotReady { .. } => "look into the folder `logs` of the state directory; the machine may be overloaded".into(),
            Self::Setting { .. } => "`--help` after the command shows what is accepted".into(),
            Self::Output { .. } => "see where the output goes: the disk may be full".into(),
            Self::Runtime { source } if NoThread::is_behind(source) => NoThread::HINT.into(),
            Self::Runtime { .. } => "the machine may be out of open files: raise `ulimit -n`".into(),
            Self::SavedJobs { before, told, .. } => {
                format!("start it with --shards {before}, or without, and those of them that are not over go on; to go on with {told}, write a checkpoint then, `syncline checkpoint JOB FILE`, cancel and delete the job, remove its models with `syncline gc --older-than 0`, and use `submit --resume FILE` here")
            }
            Self::LeftOutBlobs { before, told, .. } => {
                format!("start it with --shards {before}, or without; to go on with {told}, delete the jobs that are over there, `syncline delete JOB`, and then what belongs to none any more, `syncline gc --older-than 0`")
            }
            Self::OtherRedis { dir, before, .. } => {
                format!("what the jobs are stands in {before}: start it with the same --redis or SYNCLINE_REDIS, or without both where it had its own; to go on without these jobs, move `shard-*/jobs` and `shard-*/checkpoints` in {} away", dir.display())
            }
            Self::RedisGone { dir, .. } => {
                format!("an empty Redis would make the shards drop these jobs: mount or restore {}, or name the Redis that it was with --redis; where it is lost, `syncline checkpoint --from {}` has the weights of the checkpoints; to go on without these jobs, move `shard-*/jobs` and `shard-*/checkpoints` beside it away", dir.display(), dir.parent().unwrap_or(dir).display())
            }
            Self::JobsOfOthers { .. } => {
                "give this cluster a database of its own, as in --redis redis://HOST:6379/1, or start the other one again on its state directory, which has what its jobs have trained; where that is lost for good, --take-over goes on without: jobs that have no checkpoint begin anew, and those that have one wait a quarter of an hour for it, then fail".into()
            }
            Self::DamagedAddresses { path, .. } => {
                let path = path.display();
                format!("`mv {path} {path}.damaged`, and start it again with --shards, --replicas, --engines, --listen, --token-file and --redis as they were if you had given them, with a --redis also --take-over; addresses are taken anew")
            }
            Self::Torch { .. } => "name a Python that has torch: `python3 -m venv DIR`, `DIR/bin/pip install torch`, then --python DIR/bin/python".into(),
            Self::Listen { .. } => "something else may listen there, another `syncline dashboard` perhaps; --listen names another address, and port 0 takes a free one".into(),
            Self::Written { .. } => "see whether the folder exists and the disk has room".into(),
            Self::FolderTaken { .. } => "one that follows writes what comes until the jobs are over; end it, or name another folder".into(),
            Self::NoTraining { job } => {
                format!("`syncline tasks {job}` lists what it computes; a task that trains does it as a job of its own, {job}~N, which `syncline jobs` lists")
            }
            Self::OtherTrial { .. } => "another sweep takes another --name; or forget the trials of before, `syncline delete JOB JOB ...`, and all of them are trained anew".into(),
            Self::NoBest { .. } => "the table says what became of each; one that failed or was canceled is trained again once it is deleted: `syncline delete JOB`, then the same command".into(),
            Self::NoTrials { .. } => "`syncline jobs` lists all; --name names the sweep, and the job file has the id".into(),
            Self::Bug { .. } => "start it again: jobs go on from Redis; please report the lines above it in the log".into(),
            Self::Unhealthy { .. } => "do what the lines marked `fail` say".into(),
        }
    }
}
