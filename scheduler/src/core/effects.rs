//! What the shell must do for the core: the effects of [`Core::handle`](super::Core::handle).

use super::{
    shard_protocol::{BarrierOrder, ClockRoster, ProgressFloor, Retention},
    worker_protocol::{Assignment, TaskKey},
};
use crate::{
    ids::{ContentDigest, Incarnation, RunId, ShardIndex},
    sync::PlanRequest,
    tasks::Order,
};

/// What the shell must do once the changes of this turn are committed.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// A leased task goes to its worker, behind those that it has; a repeated one changes nothing.
    Assign {
        /// Who is to execute it.
        worker: Incarnation,
        /// The task and all that the worker needs to execute it, but for the job's settings.
        assignment: Assignment,
    },
    /// The worker's report is taken: it need not be held any longer.
    AckReport {
        /// Who sent the report.
        worker: Incarnation,
        /// The attempt that was reported, whether or not the report changed anything.
        key: TaskKey,
    },
    /// Nobody wants the task any more: it must not be started.
    Revoke {
        /// Who has it, or was about to get it.
        worker: Incarnation,
        /// The attempt that is over; a report of it that comes yet changes nothing.
        key: TaskKey,
    },
    /// The worker serves no job under this incarnation any more: it must register again.
    DismissWorker {
        /// Incarnation that ends. The worker comes back under another one.
        worker: Incarnation,
        /// In words, for the log.
        reason: String,
    },
    /// Every shard opens a run; answered with [`Input::ShardsOpened`](super::Input::ShardsOpened).
    OpenShards {
        /// Run that begins. What was started for earlier ones of the job ends.
        run: RunId,
        /// The parameters that it begins with.
        with: OpenWith,
        /// The store has lost something: a shard that has checkpoints with higher numbers than this refuses.
        known_through: Option<u64>,
    },
    /// Every shard copies its part as it is now; answered with
    /// [`Input::CheckpointPinned`](super::Input::CheckpointPinned).
    PinCheckpoint {
        /// Run at rest, whose parameters are copied.
        run: RunId,
        /// Number of the checkpoint, from 0; no two of a submission have the same.
        number: u64,
    },
    /// Every shard writes the copy; answered with
    /// [`Input::CheckpointWritten`](super::Input::CheckpointWritten).
    WriteCheckpoint {
        /// Run that goes on meanwhile; the copies are of its parameters.
        run: RunId,
        /// Number of the checkpoint whose copies every shard has.
        number: u64,
    },
    /// Every shard removes the checkpoints of the job that are given up.
    RetainCheckpoints {
        /// Run whose checkpoints are thinned out; its job may be over or deleted, and those of its other
        /// runs count as well.
        run: RunId,
        /// Which stay: complete ones.
        retention: Retention,
    },
    /// Ask a shard how far it is, and answer with [`Input::Attached`](super::Input::Attached).
    Attach {
        /// Run that the shard says it holds.
        run: RunId,
        /// Who is asked.
        shard: ShardIndex,
        /// What it must have at least, as known before it is asked; comes back with the answer.
        floor: ProgressFloor,
    },
    /// To every shard; a repeated or amended one replaces what it has.
    OrderBarrier {
        /// Run whose superstep ends with the barrier, which waits for its pushes.
        run: RunId,
        /// Superstep, roster, and how the round is applied; its revision tells which of two is newer.
        order: BarrierOrder,
    },
    /// Whose clocks count for pulls that wait for a minimum clock.
    Clocks {
        /// Run that a worker has joined, or that has just opened.
        run: RunId,
        /// The active workers, with what makes a clock of each one's pushes.
        roster: ClockRoster,
    },
    /// Every shard takes no more pushes of a worker; answered with [`Input::Sealed`](super::Input::Sealed).
    Seal {
        /// Run that the worker took part in.
        run: RunId,
        /// Who is gone from the job.
        worker: Incarnation,
    },
    /// Write a snapshot file; answered with [`Input::SnapshotWritten`](super::Input::SnapshotWritten).
    Snapshot {
        /// Attempt at the snapshot node, whose name is that of the file.
        key: TaskKey,
        /// Version to write, which the shards have pinned: that of the newest closed barrier.
        version: u64,
    },
    /// The shards forget a job, or write its last parameters if they are to be kept.
    CloseShards {
        /// Run of a job that is over, was deleted, or is unknown here and held by a shard; another one of
        /// the job stays.
        run: RunId,
        /// What becomes of the last parameters.
        weights: LastWeights,
    },
    /// Compute where a superstep ends; answered with [`Input::Planned`](super::Input::Planned).
    Plan(PlanRequest),
    /// General tasks for a worker, behind those that it was told of before.
    Orders {
        /// Who has the tasks, or is to get them.
        worker: Incarnation,
        /// Calls to run and attempts to drop, stop or give back, in this order.
        orders: Vec<Order>,
    },
    /// Nobody needs these values any more: the parameter server may remove them.
    ReleaseBlobs {
        /// BLAKE3 of each blob, in hexadecimal digits; which shard holds it is not known.
        digests: Vec<ContentDigest>,
    },
}

/// With which parameters a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenWith {
    /// The initial ones of the spec.
    Initial,
    /// Those of a checkpoint.
    Checkpoint {
        /// Which one.
        number: u64,
        /// Whether there is another complete one to go back to, should this one not be read.
        has_others: bool,
    },
}

impl OpenWith {
    /// Number of the checkpoint that is restored.
    #[must_use]
    pub fn checkpoint(self) -> Option<u64> {
        match self {
            Self::Initial => None,
            Self::Checkpoint { number, .. } => Some(number),
        }
    }
}

/// What becomes of the last parameters of a job that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastWeights {
    /// They are written to a file, and the effect is answered with
    /// [`Input::WeightsKept`](super::Input::WeightsKept). The shards hold the job until what came of that
    /// is committed, and they are told to drop it.
    Keep,
    /// Nobody needs them: there is a snapshot, or none was ever trained, or a part of them is lost.
    Drop,
    /// The job is unknown here, perhaps because Redis has gone back to before it was submitted: each shard
    /// keeps on disk what it has, for whoever brings back a Redis that knows it.
    SetAside,
    /// Somebody deleted the job, of which nothing could be read: no shard keeps any of it, nor what it has
    /// set aside.
    Discard,
}
