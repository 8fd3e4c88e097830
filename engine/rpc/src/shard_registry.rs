//! Calls of shards to the engine.

use serde::{Deserialize, Serialize};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};

use super::EngineFault;

/// A disk, as far as the system tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskState {
    /// Room for more.
    pub free_bytes: Option<u64>,
    /// Files and folders that there is room for, where the file system counts them.
    pub free_inodes: Option<u64>,
    /// Why a small file could not be written, if the last one could not.
    pub problem: Option<String>,
}

/// A process of the parameter server that announces itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardHello {
    /// Position of the shard whose process it is, from 0.
    pub index: ShardIndex,
    /// Number of shards of the whole parameter server.
    pub count: u32,
    /// Where others reach it.
    pub address: String,
    /// Random number of this process: a restarted shard has lost what it held.
    pub boot: u64,
    /// How many processes hold each shard: 1, or 2 of which one serves and the other follows.
    pub replicas: u32,
    /// What an engine has made of this process, if it has.
    pub role: Option<ReplicaRole>,
    /// Number of its state directory: whoever comes back has it, whoever replaces it has not.
    pub identity: u64,
    /// It followed when it was last stopped: another process may have the parameters.
    pub followed_before: bool,
    /// The last term under which it served, whichever process it was then; 0: it never did.
    pub served_term: u64,
    /// It follows, and has had every blob of the primary.
    pub mirrored: bool,
    /// Checkpoints of the primary that it lacks, while it follows.
    pub lacking_checkpoints: u64,
    /// The disk of its state directory.
    pub disk: DiskState,
    /// Jobs that it could serve now, without those that were set aside.
    pub jobs: u64,
    /// Jobs that no engine knew and that it has read from its disk. Most are over: they are worth more than
    /// nothing, and less than any other.
    pub set_aside: u64,
    /// The term of a process that followed this one and cannot be reached any more.
    pub lost: Option<u64>,
    /// The term of the process that follows this one, lost or not: it may serve instead until the engine has
    /// let it go.
    pub follower: Option<u64>,
}

impl ShardHello {
    /// Of a process that is the only one of its shard.
    pub fn alone(index: ShardIndex, count: u32, address: String, boot: u64) -> Self {
        Self {
            index,
            count,
            address,
            boot,
            replicas: 1,
            role: None,
            identity: boot,
            followed_before: false,
            served_term: 0,
            mirrored: false,
            lacking_checkpoints: 0,
            disk: DiskState::default(),
            jobs: 0,
            set_aside: 0,
            lost: None,
            follower: None,
        }
    }
}

/// What a process of the parameter server is to do. Terms are numbers that the engine gives, each but once;
/// the higher one is the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaRole {
    /// Keep everything and ask again soon: the other process of the shard may have more.
    Undecided,
    /// Serve the shard.
    Primary {
        /// Term under which it serves.
        term: u64,
    },
    /// Follow the one that serves it.
    Standby {
        /// Term under which it follows: each standby has its own.
        term: u64,
    },
}

impl ReplicaRole {
    /// The term of the role; 0 while it is undecided.
    pub fn term(self) -> u64 {
        match self {
            Self::Undecided => 0,
            Self::Primary { term } | Self::Standby { term } => term,
        }
    }
}

/// The other process of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardPeer {
    /// Where others reach it.
    pub address: String,
    /// Of its role.
    pub term: u64,
}

/// The answer to an announcement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardOrders {
    /// Epoch of the engine that answers; a process that has heard of a higher one does nothing of this.
    pub epoch: EngineEpoch,
    /// What the process is to do from now on.
    pub role: ReplicaRole,
    /// The other process of the shard, if it is there. Who reported its standby as lost goes on alone once
    /// it is told of none, or of another.
    pub peer: Option<ShardPeer>,
    /// Whether the engine's lease has run out by its own clock, because Redis does not answer it: another
    /// engine may lead by now, and whoever knows of others should ask them. Nothing else of the answer
    /// counts then.
    pub lead_expired: bool,
}

/// A process of the parameter server that was told to stop and has not ended yet: what its jobs had trained is
/// nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppingShard {
    /// Position of the shard whose process it is, from 0.
    pub index: ShardIndex,
    /// Where others reached it.
    pub address: String,
    /// Random number of this process, as in its announcements.
    pub boot: u64,
    /// Why it cannot end, with a code; `None` while it writes its jobs to its disk.
    pub problem: Option<String>,
}

impl StoppingShard {
    /// What it does, behind its name.
    pub fn describe(&self) -> String {
        match &self.problem {
            None => " stops, and writes its jobs to its disk".to_owned(),
            Some(problem) => format!(" stops, and is held up: {problem}"),
        }
    }
}

/// Calls of shards.
#[tarpc::service]
pub trait ShardRegistry {
    /// Sent at the start and again as a sign of life.
    async fn announce(hello: ShardHello) -> Result<ShardOrders, EngineFault>;
    /// Sent in place of that, as long as a process that was told to stop keeps its jobs.
    async fn stopping(shard: StoppingShard) -> Result<(), EngineFault>;
}
