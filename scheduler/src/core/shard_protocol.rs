//! What shards are told and what they answer, as it travels between them and the engine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ContentDigest, Incarnation, RunId, Superstep},
    sync::RoundRule,
};

/// A barrier, leased to every shard in advance. A higher revision replaces the roster of a lower one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarrierOrder {
    /// Superstep that it ends; closing it makes version `superstep + 1`.
    pub superstep: Superstep,
    /// From 1, and one more with every change of the roster.
    pub revision: u32,
    /// Last push of each incarnation that must be applied before the barrier closes.
    pub roster: BTreeMap<Incarnation, u64>,
    /// How the mean of what was pushed into the round becomes new parameters, if anything was.
    pub rule: RoundRule,
    /// Rate of the round's single step, where the rule takes one.
    pub learning_rate: f32,
    /// Keep a copy of this version for `evaluate` and `snapshot`.
    pub pin: bool,
}

/// One barrier that a shard has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedBarrier {
    /// Superstep that it ended.
    pub superstep: Superstep,
    /// Time between the close and this answer, on the shard's monotonic clock.
    pub closed_ago_us: u64,
    /// Pushes applied completely on this shard when it closed.
    pub pushes: u64,
}

/// Whose clocks count for pulls that wait for a minimum clock. A higher revision replaces a lower one; a
/// sealed worker counts no more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRoster {
    /// Rises through all generations of the job.
    pub revision: u64,
    /// What to add to a worker's watermark, the number of its last push, to get its clock.
    pub base: BTreeMap<Incarnation, u64>,
}

/// How far an incarnation's pushes came on one shard: the answer when it is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushProgress {
    /// Last push that was applied completely here.
    pub watermark: u64,
    /// Whether the next push had begun to be applied.
    pub partial: bool,
}

/// How far a shard is with a job, and what it was told to do next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardProgress {
    /// Barriers of the generation that it has closed.
    pub closed: u64,
    /// Last push of each incarnation that it has applied completely.
    pub watermarks: BTreeMap<Incarnation, u64>,
    /// Barriers that it was told to close and has not closed.
    pub orders: Vec<BarrierOrder>,
    /// Of the roster of clocks in force; 0 before the first.
    pub clock_revision: u64,
}

/// What every shard has done of a job: it said so once, so that one which knows less has gone back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressFloor {
    /// Barriers that are closed on all shards.
    pub closed: u64,
    /// Last push of each worker that every shard has acknowledged.
    pub pushes: BTreeMap<Incarnation, u64>,
}

/// A job that a shard holds, or has closed lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    /// The run whose parameters are in memory, or were.
    pub run: RunId,
    /// Whether it was closed, as is ordered once a job is over.
    pub closed: bool,
}

/// Which checkpoints of a job stay on the shards' disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// Of those up to a number these alone. What is newer stays: an order may be late.
    Thin {
        /// Numbers of those that stay, ascending.
        keep: Vec<u64>,
        /// The highest number that may go.
        through: u64,
    },
    /// These alone, and the job makes no further ones.
    Last {
        /// Numbers of those that stay, ascending; where there are none, the folder of the job goes as well.
        keep: Vec<u64>,
    },
}

impl Retention {
    /// Whether the checkpoint of this number goes.
    pub fn gives_up(&self, number: u64) -> bool {
        match self {
            Self::Thin { keep, through } => number <= *through && !keep.contains(&number),
            Self::Last { keep } => !keep.contains(&number),
        }
    }

    /// Whether the job makes no further ones.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Last { .. })
    }
}

/// A snapshot on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// The safetensors file, on the machine of the shard that wrote it.
    pub path: String,
    /// Size of the file, with the parameters of all shards.
    pub bytes: u64,
    /// Of the file.
    pub digest: ContentDigest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_and_what_stays() {
        let thin = |keep: &[u64], through| Retention::Thin { keep: keep.to_vec(), through };
        let last = |keep: &[u64]| Retention::Last { keep: keep.to_vec() };
        #[rustfmt::skip]
        let cases: [(&str, Retention, &[u64]); 6] = [
            ("what is newer stays",    thin(&[1, 3], 3),     &[0, 2]),
            ("a late order",           thin(&[0, 1], 1),     &[]),
            ("one that failed",        thin(&[3], 4),        &[0, 1, 2, 4]),
            ("all that there may be",  thin(&[], u64::MAX),  &[0, 1, 2, 3, 4, 5]),
            ("that of the end stays",  last(&[3]),           &[0, 1, 2, 4, 5]),
            ("none stays",             last(&[]),            &[0, 1, 2, 3, 4, 5]),
        ];
        for (what, retention, gone) in cases {
            assert_eq!(
                (0..6).filter(|number| retention.gives_up(*number)).collect::<Vec<_>>(),
                gone,
                "{what}"
            );
        }
        assert!(last(&[3]).is_last() && last(&[]).is_last());
        assert!(!thin(&[], u64::MAX).is_last(), "the highest number says nothing of later ones");
    }
}
