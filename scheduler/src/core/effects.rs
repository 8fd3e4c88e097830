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
    OpenShards {
        job: JobId,
        generation: Generation,
    },
    /// Ask a shard how far it is, and answer with [`Input::Attached`](super::Input::Attached).
    Attach {
        job: JobId,
        generation: Generation,
        shard: ShardIndex,
        floor: ProgressFloor,
    },
    /// To every shard; a repeated or amended one replaces what it has.
    LeaseBarrier {
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
