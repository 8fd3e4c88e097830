//! What the shell must do for the core: the effects of [`Core::handle`](super::Core::handle).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::protocol::{Assignment, TaskKey};
use crate::{
    ids::{Generation, Incarnation, JobId, ShardIndex, Superstep},
    sync::{PlanRequest, RoundRule},
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
    /// Ask a shard how far it is, and answer with [`Input::Attached`].
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
        barrier: Barrier,
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
}

/// A barrier as the shards need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Barrier {
    pub superstep: Superstep,
    pub revision: u32,
    pub roster: BTreeMap<Incarnation, u64>,
    pub learning_rate: f32,
    pub rule: RoundRule,
    pub pin: bool,
}

/// The workers whose clocks count. A higher revision replaces a lower one; a sealed worker counts no more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRoster {
    pub revision: u64,
    /// What to add to a worker's number of pushes to get its clock.
    pub base: BTreeMap<Incarnation, u64>,
}

/// What every shard has done of a job: it said so once, so that one which knows less has gone back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressFloor {
    /// Barriers that are closed on all shards.
    pub closed: u64,
    /// Last push of each worker that every shard has acknowledged.
    pub pushes: BTreeMap<Incarnation, u64>,
}
