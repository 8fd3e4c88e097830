//! What the shell must do for the core: the effects of [`Core::handle`](super::Core::handle).

use super::{
    shard_protocol::{BarrierOrder, ClockRoster, ProgressFloor},
    worker_protocol::{Assignment, TaskKey},
};
use crate::{
    ids::{Generation, Incarnation, JobId, ShardIndex},
    sync::PlanRequest,
    tasks::Order,
};

/// What the shell must do once the changes of this turn are committed.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Assign {
        worker: Incarnation,
        assignment: Assignment,
    },
    /// The worker's report is taken: it need not be held any longer.
    AckReport {
        worker: Incarnation,
        key: TaskKey,
    },
    /// Nobody wants the task any more: it must not be started.
    Revoke {
        worker: Incarnation,
        key: TaskKey,
    },
    /// The worker serves no job under this incarnation any more: it must register again.
    DismissWorker {
        worker: Incarnation,
        reason: String,
    },
    /// With the parameters of a checkpoint, or the initial ones.
    OpenShards {
        job: JobId,
        generation: Generation,
        checkpoint: Option<u64>,
    },
    /// Every shard copies its part as it is now; answered with [`Input::CheckpointPinned`](super::Input::CheckpointPinned).
    PinCheckpoint {
        job: JobId,
        generation: Generation,
        number: u64,
    },
    /// Every shard writes the copy; answered with [`Input::CheckpointWritten`](super::Input::CheckpointWritten).
    WriteCheckpoint {
        job: JobId,
        generation: Generation,
        number: u64,
    },
    /// Every shard removes the other checkpoints of the job up to number `through`.
    KeepCheckpoints {
        job: JobId,
        generation: Generation,
        numbers: Vec<u64>,
        through: u64,
    },
    /// Ask a shard how far it is, and answer with [`Input::Attached`](super::Input::Attached).
    Attach {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        floor: ProgressFloor,
    },
    /// To every shard; a repeated or amended one replaces what it has.
    OrderBarrier {
        job: JobId,
        generation: Generation,
        order: BarrierOrder,
    },
    /// Whose clocks count for pulls that wait for a minimum clock.
    Clocks {
        job: JobId,
        generation: Generation,
        roster: ClockRoster,
    },
    Seal {
        job: JobId,
        generation: Generation,
        worker: Incarnation,
    },
    Snapshot {
        key: TaskKey,
        version: u64,
    },
    /// The shards forget a job, and before that write its last parameters if they are to be `keep`t.
    CloseShards {
        job: JobId,
        generation: Generation,
        keep: bool,
    },
    Plan(PlanRequest),
    /// General tasks for a worker, behind those that it was told of before.
    Orders {
        worker: Incarnation,
        orders: Vec<Order>,
    },
    /// Nobody needs these values any more: the parameter server may remove them.
    ReleaseBlobs {
        digests: Vec<String>,
    },
}
