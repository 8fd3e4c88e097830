//! What a job knows of its checkpoints: the one that is being made, and those that are complete.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    downtime::Shift, evaluation::Evaluation, inputs::TaskFault, progress::Progress, records::Counters,
};
use crate::ids::{MOST_LOST, ShardIndex};

/// A moment of rest that every shard holds, or is to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub number: u64,
    pub at_us: u64,
    /// How long each worker stood still for it, on average; 0 until training goes on.
    pub rest_us: u64,
    /// On the disks of all shards; 0 as long as it is not complete.
    pub bytes: u64,
    /// Since when it is complete, and Redis has heard of it; 0 as long as it is not.
    #[serde(default)]
    pub complete_us: u64,
    pub progress: Progress,
    /// Of exactly these parameters, if there was one.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
}

/// A checkpoint that is being made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckpointPhase {
    /// Nothing more is granted until everything that is has ended.
    Resting,
    /// At rest, until every shard has a copy in memory.
    Pinning { checkpoint: Box<Checkpoint>, by: BTreeSet<ShardIndex> },
    /// Training goes on, the shards write: bytes of those that have.
    Writing { checkpoint: Box<Checkpoint>, by: BTreeMap<ShardIndex, u64> },
}

/// The checkpoints of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// Number of the next one: none comes twice, whatever is rolled back.
    pub(super) next: u64,
    /// Somebody wants one of what is trained now, and waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) requested: bool,
    /// When the last one was begun, and how many epochs were complete; before the first, when training
    /// began.
    pub(super) last_us: Option<u64>,
    pub(super) last_epochs: u32,
    pub(super) making: Option<CheckpointPhase>,
    /// Complete ones, the newest last.
    pub(super) complete: Vec<Checkpoint>,
    /// Those that the shards could not read since the newest complete one: where none is left the job fails,
    /// and has them again for one that goes on from it once they can be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unread: Vec<Checkpoint>,
    /// The one with which the present generation of the parameters began.
    pub(super) restored: Option<u64>,
    /// The store has lost what came after: the highest number that a shard may have where the job goes back
    /// by itself. Until the present generation of the parameters is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) known_through: Option<u64>,
    /// Why the newest that was tried came to nothing; `None` once one is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failing: Option<TaskFault>,
}

impl Checkpoints {
    /// Those of a job that goes on behind so many complete epochs of another one.
    pub(super) fn going_on(epochs_complete: u32) -> Self {
        Self { last_epochs: epochs_complete, ..Self::default() }
    }

    /// The newest complete one.
    pub(super) fn newest(&self) -> Option<&Checkpoint> {
        self.complete.last()
    }

    /// Whether nothing may be granted because of one.
    pub(super) fn rests(&self) -> bool {
        matches!(self.making, Some(CheckpointPhase::Resting | CheckpointPhase::Pinning { .. }))
    }

    /// The shards may have what the store has lost. One that was made just then is given up for the one
    /// before it; more of them are work that somebody else has to give up. Numbers from here on, in a job
    /// that was submitted so long ago, are none that were given meanwhile.
    pub(super) fn expect_unknown(&mut self, age_s: u64) {
        self.known_through.get_or_insert(self.next);
        self.next = self.next.max(age_s) + u64::from(MOST_LOST);
    }

    /// Counts the time to the next one from here.
    pub(super) fn put_off(&mut self, now_us: u64, epochs_complete: u32) {
        (self.last_us, self.last_epochs) = (Some(now_us), epochs_complete);
        self.making = None;
    }

    /// For so long the job was paused, which began to train then.
    pub(super) fn pass_over(&mut self, paused_us: u64, started_us: u64, now_us: u64) {
        // One that went back within the pause counts from there.
        let last_us = self.last_us.unwrap_or(started_us).saturating_add(paused_us);
        self.last_us = Some(last_us.min(now_us));
    }

    /// The clock by which they are counted has jumped.
    pub(super) fn shift(&mut self, shift: Shift) {
        self.last_us = self.last_us.map(|last_us| shift.apply(last_us));
    }

    /// While nothing was decided Redis may not have written, either: how long ago they were completed is
    /// counted without that time. One that a turn has moved already, as it was in Redis only then, is not
    /// moved beyond `now_us`.
    pub(super) fn shift_completions(&mut self, shift: Shift, now_us: u64) {
        for checkpoint in &mut self.complete {
            checkpoint.complete_us = shift.apply(checkpoint.complete_us).min(now_us);
        }
    }

    /// What was completed since then is known to Redis only now. `false`: nothing was.
    pub(super) fn complete_again(&mut self, since_us: u64, now_us: u64) -> bool {
        let mut new =
            self.complete.iter_mut().filter(|checkpoint| checkpoint.complete_us >= since_us).peekable();
        let are_some = new.peek().is_some();
        new.for_each(|checkpoint| checkpoint.complete_us = now_us);
        are_some
    }

    /// Those of what was there after so many samples, also one that is being made.
    pub(super) fn of_samples_mut(&mut self, samples: u64) -> impl Iterator<Item = &mut Checkpoint> {
        let making = self.making.as_mut().and_then(CheckpointPhase::checkpoint_mut);
        self.complete.iter_mut().chain(making).filter(move |checkpoint| checkpoint.samples() == samples)
    }

    /// Whether there is one of what was there after so many samples, or is about to be.
    pub(super) fn holds(&self, samples: u64) -> bool {
        let making = self.making.as_ref().and_then(CheckpointPhase::checkpoint);
        self.complete.iter().chain(making).any(|checkpoint| checkpoint.samples() == samples)
    }

    /// No more are made.
    pub(super) fn end(&mut self) {
        self.making = None;
    }

    /// Whether the shards may have some, complete or not.
    pub(super) fn has_begun_any(&self) -> bool {
        self.next > 0
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.complete.iter().map(|checkpoint| checkpoint.number).collect()
    }
}

impl Checkpoint {
    /// Samples that are in it.
    pub(super) fn samples(&self) -> u64 {
        self.progress.counters.counted()
    }
}

impl CheckpointPhase {
    pub(super) fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Self::Resting => None,
            Self::Pinning { checkpoint, .. } | Self::Writing { checkpoint, .. } => Some(checkpoint),
        }
    }

    fn checkpoint_mut(&mut self) -> Option<&mut Checkpoint> {
        match self {
            Self::Resting => None,
            Self::Pinning { checkpoint, .. } | Self::Writing { checkpoint, .. } => Some(checkpoint),
        }
    }
}

impl Counters {
    /// Samples that count as seen.
    pub(super) fn counted(&self) -> u64 {
        self.samples_done + self.samples_torn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pause_took_is_passed_over_but_no_further_than_now() {
        let hours = |hours: u64| hours * 3_600_000_000;
        #[rustfmt::skip]
        let cases = [
            // Begun at one, paused from two to five.
            (None,    hours(4), "counts from the beginning"),
            (Some(2), hours(5), "one was taken just before"),
            (Some(4), hours(5), "went back within the pause"),
        ];
        for (last, want, name) in cases {
            let mut checkpoints = Checkpoints { last_us: last.map(hours), ..Checkpoints::default() };
            checkpoints.pass_over(hours(3), hours(1), hours(5));
            assert_eq!(checkpoints.last_us, Some(want), "{name}");
        }
    }
}
