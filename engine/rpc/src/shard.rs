//! What the engine says to one shard of the parameter server. The shard's crate implements it.
//!
//! Every call carries the engine's epoch; a shard keeps the highest it has seen and refuses lower ones. Every
//! call may be sent again: a repeated one changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use syncline_scheduler::core::{
    BarrierOrder, ClockRoster, ClosedBarrier, HeldJob, PushProgress, Retention, ShardProgress, SnapshotFile,
};
use syncline_scheduler::{
    core::TaskFault,
    fault_code::FaultCode,
    ids::{ContentDigest, EngineEpoch, Generation, Incarnation, JobId, RunId, ShardIndex},
    spec::{Layout, Optimizer, StepRun},
};

use super::cause::Cause;

/// Everything a shard must know to hold its part of a job's parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenJob {
    /// Whose parameters they are; a shard that holds those of a later run of the same job refuses.
    pub run: RunId,
    /// Position of the shard that is told, which says which part it holds.
    pub shard: ShardIndex,
    /// Addresses of all shards, in order; also the places where blobs can be found.
    pub shards: Vec<String>,
    /// How all parameters lie in the flat array, those of other shards included.
    pub layout: Layout,
    /// Rule by which gradients become steps.
    pub optimizer: Optimizer,
    /// The mean of a round of gradients with a larger norm is scaled down to it.
    pub clip_norm: Option<f32>,
    /// Digest of the blob with the initial parameters: little-endian f32 in layout order.
    pub initial: ContentDigest,
    /// That blob is a checkpoint file: behind the parameters it holds the optimizer's state, after so many
    /// steps.
    pub resumed: Option<Vec<StepRun>>,
    /// Begin with this checkpoint of an earlier generation instead.
    pub checkpoint: Option<u64>,
    /// Redis has lost something: refuse if there are checkpoints with higher numbers than this.
    pub known_through: Option<u64>,
}

/// Where a job stands on one shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardState {
    /// Generation of the parameters that are open here.
    pub generation: Generation,
    /// How far they are; the number of closed barriers is also that of the version that pulls can get.
    pub progress: ShardProgress,
    /// Pushes applied completely.
    pub pushes: u64,
}

/// What a shard has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// How many blobs; where the engine answers, on all shards together.
    pub blobs: u64,
    /// Size of their files, likewise.
    pub bytes: u64,
}

/// Every job that the cluster knows, and what tells it from earlier ones of its name; `None`: nobody can say,
/// and all of the name count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownJobs(pub BTreeMap<JobId, Option<u32>>);

impl KnownJobs {
    /// Whether this is a run of one of them.
    pub fn has(&self, run: &RunId) -> bool {
        let nonce = self.0.get(&run.job);
        nonce.is_some_and(|nonce| nonce.is_none_or(|nonce| nonce == run.generation.nonce()))
    }
}

/// Digests that lie side by side in their order: those of a million blobs travel in several calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestRange {
    /// The first; `None`: the lowest of all.
    pub first: Option<ContentDigest>,
    /// The first behind it; `None`: it goes up to the highest of all.
    pub end: Option<ContentDigest>,
}

impl DigestRange {
    /// Whether a digest lies in it.
    pub fn contains(&self, digest: ContentDigest) -> bool {
        self.first.is_none_or(|first| first <= digest) && self.end.is_none_or(|end| digest < end)
    }
}

/// What is done with folders of jobs that nobody knows any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FolderGc {
    /// They are counted, and stay.
    Count,
    /// They are counted and removed.
    Remove,
}

/// What shards keep of a job in a folder of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobFolders {
    /// From which it goes on, or another job does.
    Checkpoints,
    /// What its nodes wrote, and its last weights.
    Snapshots,
}

impl JobFolders {
    /// The folder in a shard's state directory that holds those of all jobs.
    pub fn dir_name(self) -> &'static str {
        match self {
            Self::Checkpoints => "checkpoints",
            Self::Snapshots => "snapshots",
        }
    }
}

/// What a shard has in folders of jobs that nobody knows any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// Of how many jobs; where the engine answers, folders on all shards together.
    pub folders: u64,
    /// Size of their files, likewise.
    pub bytes: u64,
}

/// Why a shard refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ShardFault {
    /// The order is of an engine that was deposed.
    #[error("[E401] engine epoch {given} is over, {highest} is active")]
    Fenced {
        /// Epoch of the order.
        given: EngineEpoch,
        /// Highest epoch that the shard has heard of.
        highest: EngineEpoch,
    },
    /// It was never opened here, or the process was started again without it.
    #[error("[E402] job {job} is not open on this shard")]
    UnknownJob {
        /// Job that was meant.
        job: JobId,
    },
    /// The caller means another generation of the parameters than the one that is open here.
    #[error("[E403] generation {given} of job {job} is over, {current} is active")]
    WrongGeneration {
        /// Job that was meant.
        job: JobId,
        /// Generation that the caller means.
        given: Generation,
        /// Generation that is open here.
        current: Generation,
    },
    /// None of the shards that were asked keeps it.
    #[error("[E404] blob {digest} is on none of the shards")]
    MissingBlob {
        /// Its BLAKE3, in hex.
        digest: ContentDigest,
    },
    /// Redis has lost what it knew of newer checkpoints: to go back to an older one would throw away what is
    /// in them.
    #[error(
        "[E646] Redis has lost data and knows checkpoints of job {job} up to number {known_through}, this shard has number {newest}"
    )]
    NewerCheckpoint {
        /// Job whose checkpoint it is.
        job: JobId,
        /// The highest number that it may have had for the order to be carried out.
        known_through: u64,
        /// The highest number on this shard's disk.
        newest: u64,
    },
    /// What was asked cannot be meant, or does not fit the job: repeating it changes nothing.
    #[error("[E405] {what}")]
    Invalid {
        /// What is wrong with it, in words.
        what: String,
    },
    /// The shard's disk, memory or threads, or its way to another shard, failed it.
    #[error("[E406] {what}: {cause}")]
    Io {
        /// What could not be done, such as `cannot write PATH`.
        what: String,
        /// What the system said.
        cause: String,
    },
    /// No barrier order has asked to keep this version, its barrier is still open, or a newer one was kept.
    #[error("[E407] version {wanted} of job {job} is not pinned here")]
    NotPinned {
        /// Job that was meant.
        job: JobId,
        /// Version that was asked for: the number of barriers closed in it.
        wanted: u64,
    },
    /// The engine has dropped the worker: nothing more of this incarnation is taken.
    #[error("[E408] worker {worker} was dropped from job {job}; it must register again")]
    Sealed {
        /// Job that it worked for.
        job: JobId,
        /// Incarnation that is sealed.
        worker: Incarnation,
    },
    /// The job is over here; whoever waited for something of it is woken with this.
    #[error("[E409] job {job} was closed")]
    Closed {
        /// Job that was meant.
        job: JobId,
    },
    /// It was to follow, or to take over, and is no standby, or one of another term.
    #[error("[E452] this process does not follow under term {term}")]
    NotFollowing {
        /// Term that was named: that of the standby, or the one under which it was to serve.
        term: u64,
    },
    /// This shard's part of the checkpoint is not on its disk, is damaged, or does not fit the order.
    #[error("[E439] checkpoint {number} of job {job} cannot be used: {cause}")]
    NoCheckpoint {
        /// Job whose checkpoint it is.
        job: JobId,
        /// Number of the checkpoint.
        number: u64,
        /// What is wrong with the part, in words.
        cause: String,
    },
    /// No shard that answers has the blob: the order is given again once all are there.
    #[error(
        "[E429] the initial parameters {digest} may be on the shard at {address}, which cannot be reached: {cause}"
    )]
    PeerAway {
        /// BLAKE3 of the blob, in hex.
        digest: ContentDigest,
        /// The last shard that could not be asked.
        address: String,
        /// Why it could not be asked.
        cause: String,
    },
    /// It is not on this process, and may be on the other one of the shard.
    #[error("[E454] blob {digest} may be on the second process of its shard, which cannot be asked: {cause}")]
    SecondAway {
        /// Its BLAKE3, in hex.
        digest: ContentDigest,
        /// Why it could not be asked.
        cause: String,
    },
    /// The connection is of no use any more; the same may be asked over another one.
    #[error("[E453] what came over the connection cannot be read: {what}")]
    Garbled {
        /// What is wrong with the bytes, in words.
        what: String,
    },
    /// A disk has damaged a snapshot since it was written, and with it the blob, which is the same file.
    #[error("[E634] snapshot {path} is damaged, and was set aside as {aside}")]
    DamagedSnapshot {
        /// Its file.
        path: String,
        /// What that is called now.
        aside: String,
    },
}

impl ShardFault {
    /// This fault as what failed a task, or a part of a checkpoint.
    pub fn as_task_fault(&self) -> TaskFault {
        TaskFault { code: FaultCode::new(self.code()), reason: self.to_string() }
    }

    /// What those are told for whom the shard was asked.
    pub fn cause(&self) -> Cause {
        Cause::new(self.code(), self)
    }

    /// Whether another job of the name is in the place of the one that is meant. It makes way.
    pub fn is_of_other_job(&self) -> bool {
        matches!(self, Self::WrongGeneration { given, current, .. } if given.nonce() != current.nonce())
    }

    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "E401",
            Self::UnknownJob { .. } => "E402",
            Self::WrongGeneration { .. } => "E403",
            Self::MissingBlob { .. } => "E404",
            Self::NewerCheckpoint { .. } => "E646",
            Self::Invalid { .. } => "E405",
            Self::Io { .. } => "E406",
            Self::NotPinned { .. } => "E407",
            Self::Sealed { .. } => "E408",
            Self::Closed { .. } => "E409",
            Self::NotFollowing { .. } => "E452",
            Self::NoCheckpoint { .. } => "E439",
            Self::PeerAway { .. } => "E429",
            Self::SecondAway { .. } => "E454",
            Self::Garbled { .. } => "E453",
            Self::DamagedSnapshot { .. } => "E634",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Fenced { .. } => "nothing: another engine leads, and this one goes on as the standby",
            Self::WrongGeneration { .. } => "nothing: the worker goes on with the restored parameters",
            Self::Sealed { .. } => "nothing: the worker comes back by itself under a new incarnation",
            Self::Closed { .. } => "nothing: the job is over",
            Self::MissingBlob { .. } => {
                "submit again with the same files, which uploads what is missing; trained weights come from the newest checkpoint: \
                 `syncline submit FILE --new --resume JOB`"
            }
            Self::SecondAway { .. } => {
                "start or wake the second process of the shard (`syncline doctor` names it); if it is gone for good, submit the job again"
            }
            Self::Io { .. } => "look at the disk of the shard's state directory, and at its machine's memory",
            Self::NotPinned { .. } => {
                "see the shard's log: where it says that there is no memory to pin a version, its machine needs more"
            }
            Self::UnknownJob { .. } => "nothing: the engine opens the job there, or ends it",
            Self::PeerAway { .. } => "nothing, if that shard is started again; otherwise see why it ended",
            Self::NotFollowing { .. } => {
                "nothing, unless it stays: then report it with the logs of both processes"
            }
            Self::NewerCheckpoint { .. } => {
                "restore a newer copy of Redis, if there is one; from what Redis knows, `syncline submit FILE --new --resume JOB` goes on, \
                 and the newer checkpoints are lost when this job is deleted"
            }
            Self::NoCheckpoint { .. } => "look at the disk of that shard's state directory",
            Self::Garbled { .. } => {
                "nothing, if it is seen once: it is asked again over another connection; otherwise see the error that it names"
            }
            Self::DamagedSnapshot { .. } => {
                "look at the disk of that shard's state directory; trained weights come from the newest checkpoint: \
                 `syncline submit FILE --new --resume JOB`"
            }
            Self::Invalid { .. } => "this should not happen; please report it with the shard's log",
        };
        Some(hint.to_owned())
    }
}

/// Orders to one shard.
#[tarpc::service]
pub trait Shard {
    /// Serves from now on what it has followed so far, under this term. Answers how many jobs that is; one
    /// that serves already says so again.
    async fn promote(epoch: EngineEpoch, term: u64) -> Result<u64, ShardFault>;
    /// Takes note of the engine's epoch and says where the job of this run stands, in whatever generation;
    /// `None`: not here. Another job of its name is set aside: its engine did not know this one.
    async fn attach(epoch: EngineEpoch, run: RunId) -> Result<Option<ShardState>, ShardFault>;
    /// Says whether the shard would refuse to open a run of a job of which checkpoints through this number are
    /// known, because it has a newer one. Nothing is changed.
    async fn check_checkpoints(epoch: EngineEpoch, run: RunId, known_through: u64) -> Result<(), ShardFault>;
    /// Loads this shard's part of the initial parameters. A job that is open in the same generation stays as
    /// it is.
    async fn open(epoch: EngineEpoch, job: OpenJob) -> Result<ShardState, ShardFault>;
    /// Leases a barrier, or amends its roster. One that is closed already stays closed.
    async fn order_barrier(epoch: EngineEpoch, run: RunId, order: BarrierOrder) -> Result<(), ShardFault>;
    /// Says whose clocks count from now on. A revision that is known, or was replaced, changes nothing.
    async fn set_clock_roster(epoch: EngineEpoch, run: RunId, roster: ClockRoster) -> Result<(), ShardFault>;
    /// Refuses the incarnation's bytes from now on and says how far it came.
    async fn seal(epoch: EngineEpoch, run: RunId, worker: Incarnation) -> Result<PushProgress, ShardFault>;
    /// Barriers closed beyond the first `seen`; waits up to `wait_ms` for one.
    async fn await_closed(
        epoch: EngineEpoch,
        run: RunId,
        seen: u64,
        wait_ms: u64,
    ) -> Result<Vec<ClosedBarrier>, ShardFault>;
    /// Collects pinned version `version` from all shards and writes it as `name`.safetensors; `None`: the
    /// latest values, whatever is being pushed meanwhile.
    async fn snapshot(
        epoch: EngineEpoch,
        run: RunId,
        version: Option<u64>,
        name: String,
    ) -> Result<SnapshotFile, ShardFault>;
    /// Copies this shard's part of a job that is at rest, as checkpoint `number`. One that was copied before
    /// stays.
    async fn pin_checkpoint(epoch: EngineEpoch, run: RunId, number: u64) -> Result<(), ShardFault>;
    /// Brings what was copied to disk and says how many bytes it is.
    async fn write_checkpoint(epoch: EngineEpoch, run: RunId, number: u64) -> Result<u64, ShardFault>;
    /// Keeps this shard's part of a checkpoint as a blob as well, and gives its digest. The job need not be
    /// open here.
    async fn share_checkpoint(run: RunId, number: u64) -> Result<ContentDigest, ShardFault>;
    /// Removes the checkpoints of a job that are given up. The job need not be open here.
    async fn retain_checkpoints(
        epoch: EngineEpoch,
        run: RunId,
        retention: Retention,
    ) -> Result<(), ShardFault>;
    /// Where all shards are now, in order: those of every job that is open here. `revision` grows with each
    /// change that the engine hears of; what comes late changes nothing.
    async fn set_addresses(epoch: EngineEpoch, revision: u64, shards: Vec<String>) -> Result<(), ShardFault>;
    /// Every job that is open or set aside here, or was closed lately.
    async fn list_jobs(epoch: EngineEpoch) -> Result<Vec<HeldJob>, ShardFault>;
    /// Forgets the job and wakes everybody who waits for it with [`ShardFault::Closed`]. Another generation
    /// stays.
    async fn close(epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault>;
    /// Closes a job that the engine does not know, or does not mean: it is kept on disk, and read again once
    /// an engine asks for it.
    async fn set_aside(epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault>;
    /// The same for a job that somebody deleted: nothing of it stays, nor what was set aside.
    async fn discard(epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault>;
    /// Removes blobs whose digests lie in `range`, are not among `keep`, and that came, or were asked for,
    /// longer ago than `older_than_s`. What was just uploaded for a job that is about to be submitted
    /// survives by its age.
    async fn collect(
        epoch: EngineEpoch,
        range: DigestRange,
        keep: Vec<ContentDigest>,
        older_than_s: u64,
    ) -> Result<Collected, ShardFault>;
    /// What folders there are of jobs that are neither `known` nor open here, of earlier jobs of the same
    /// name as well, and in which nothing was written for `older_than_s`.
    async fn collect_folders(
        epoch: EngineEpoch,
        what: JobFolders,
        known: KnownJobs,
        older_than_s: u64,
        gc: FolderGc,
    ) -> Result<Forgotten, ShardFault>;
    /// Removes these blobs at once: nobody needs them any more. Those that are not here are no fault.
    async fn release(epoch: EngineEpoch, digests: Vec<ContentDigest>) -> Result<(), ShardFault>;
    /// Which of these blobs are kept here. They count as asked for.
    async fn has_blobs(digests: Vec<ContentDigest>) -> Vec<bool>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_decides_by_is_called_by_the_codes_that_it_knows() {
        let job: JobId = "digits".parse().unwrap();
        let (number, cause) = (3, String::new());
        let faults = [
            (ShardFault::Io { what: "w".into(), cause: "full".into() }, FaultCode::SHARD_IO),
            (ShardFault::Closed { job: job.clone() }, FaultCode::CLOSED),
            (
                ShardFault::NewerCheckpoint { job: job.clone(), known_through: 1, newest: 2 },
                FaultCode::NEWER_CHECKPOINT,
            ),
            (ShardFault::NoCheckpoint { job, number, cause }, FaultCode::CHECKPOINT_UNUSABLE),
        ];
        for (fault, code) in faults {
            assert_eq!(fault.as_task_fault(), TaskFault { code, reason: fault.to_string() });
        }
    }
}
