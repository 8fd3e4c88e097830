//! Checkpoints: when one is due, the rest in which it is taken, and which ones are complete.
//!
//! A job comes to rest as at the end of its samples: nothing more is granted, an open superstep ends where everybody is,
//! and its barrier closes. Then every sample that was handed out is counted, so that cursor and counters say exactly
//! what is in the parameters. The shards copy these; training goes on, and the copies are written meanwhile. A checkpoint
//! counts once every shard has said that its part is on disk.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    downtime::Shift,
    effects::{Effect, LastWeights},
    evaluation::Evaluation,
    event::Happening,
    inputs::TaskFault,
    job::Job,
    member::Membership,
    progress::Progress,
    records::Counters,
    turn::Turn,
};
use crate::ids::ShardIndex;

/// So long after a checkpoint is complete Redis may still go back to before it: `appendfsync everysec` may be 2 s behind, and the
/// commit itself takes up to 2 s where no downtime is discounted.
const DURABLE_AFTER_US: u64 = 5_000_000;

/// A moment of rest that every shard holds, or is to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub number: u64,
    pub at_us: u64,
    /// How long each worker stood still for it, on average; 0 until training goes on.
    pub rest_us: u64,
    /// On the disks of all shards; 0 as long as it is not complete.
    pub bytes: u64,
    /// Since when it is complete; 0 as long as it is not.
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
    /// When the last one was begun, and how many epochs were complete; before the first, when training began.
    last_us: Option<u64>,
    last_epochs: u32,
    pub(super) making: Option<CheckpointPhase>,
    /// Complete ones, the newest last.
    pub(super) complete: Vec<Checkpoint>,
    /// Those that the shards could not read since the newest complete one: where none is left the job fails, and has them again for
    /// one that goes on from it once they can be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unread: Vec<Checkpoint>,
    /// The one with which the present generation of the parameters began.
    pub(super) restored: Option<u64>,
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

    /// While nothing was decided Redis may not have written, either: how long ago they were completed is counted without that time.
    pub(super) fn shift_completions(&mut self, shift: Shift) {
        for checkpoint in &mut self.complete {
            checkpoint.complete_us = shift.apply(checkpoint.complete_us);
        }
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

    /// Whether no crash of Redis makes it forget this one.
    fn is_durable(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.complete_us) >= DURABLE_AFTER_US
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

impl Job {
    /// Lets the job come to rest if a checkpoint is due.
    pub(super) fn rest_when_due(&mut self, now_us: u64) {
        if self.state.checkpoints.making.is_some() || !self.checkpoint_is_due(now_us) {
            return;
        }
        let counted = self.counted();
        let epochs_complete = self.state.epochs_complete;
        let checkpoints = &mut self.state.checkpoints;
        checkpoints.put_off(now_us, epochs_complete);
        // What is there already would only be written again.
        let newest = checkpoints.newest().map_or(0, Checkpoint::samples);
        match counted > newest {
            true => checkpoints.making = Some(CheckpointPhase::Resting),
            false => checkpoints.requested = false,
        }
        self.changes.job_state = true;
    }

    fn checkpoint_is_due(&self, now_us: u64) -> bool {
        let Some(spec) = self.train().checkpoint.filter(|_| !self.state.cursor.is_exhausted()) else {
            return false;
        };
        let checkpoints = &self.state.checkpoints;
        if checkpoints.requested || self.state.paused && spec.until_done {
            return checkpoints.requested;
        }
        let last_us = checkpoints.last_us.or(self.state.started_us).unwrap_or(now_us);
        let epochs = self.state.epochs_complete.saturating_sub(checkpoints.last_epochs);
        spec.is_due(now_us.saturating_sub(last_us), epochs)
    }

    /// Ends what is open while the job comes to rest, and has the checkpoint taken once it has.
    pub(super) fn take_checkpoint_at_rest(&mut self, turn: &mut Turn<'_>) {
        if self.state.checkpoints.making != Some(CheckpointPhase::Resting) {
            return;
        }
        if self.state.cursor.is_exhausted() {
            // The end is near, and keeps what is there itself.
            (self.state.checkpoints.making, self.state.checkpoints.requested) = (None, false);
            self.changes.job_state = true;
            return;
        }
        self.end_open_superstep(turn);
        if self.is_at_rest() {
            self.pin_checkpoint(turn);
        }
    }

    /// Has the shards copy what they hold. The job is at rest.
    pub(super) fn pin_checkpoint(&mut self, turn: &mut Turn<'_>) {
        let evaluation = self.state.evaluations.watch.after(self.counted()).cloned();
        let state = &mut self.state;
        let progress = Progress::of(state);
        let number = state.checkpoints.next;
        (state.checkpoints.next, state.checkpoints.requested) = (number + 1, false);
        let checkpoint = Checkpoint {
            number,
            at_us: turn.now_us,
            rest_us: 0,
            bytes: 0,
            complete_us: 0,
            progress,
            evaluation,
        };
        let (checkpoint, by) = (Box::new(checkpoint), BTreeSet::new());
        state.checkpoints.making = Some(CheckpointPhase::Pinning { checkpoint, by });
        self.changes.job_state = true;
        turn.effects.extend(self.checkpoint_order());
    }

    /// Whether the parameters hold exactly what is counted, and nothing is on its way to them.
    pub(super) fn is_at_rest(&self) -> bool {
        self.supersteps.values().all(|superstep| superstep.is_closed())
            && self.members.values().all(|member| match member.membership {
                Membership::Active => member.outstanding() == 0,
                Membership::Sealing { .. } => false,
                Membership::Preparing | Membership::Gone => true,
            })
            && self.state.cursor.handed_out() == self.counted()
    }

    /// What the shards must be told about the checkpoint that is being made.
    pub(super) fn checkpoint_order(&self) -> Option<Effect> {
        let run = self.run();
        match self.state.checkpoints.making.as_ref()? {
            CheckpointPhase::Resting => None,
            CheckpointPhase::Pinning { checkpoint, .. } => {
                Some(Effect::PinCheckpoint { run, number: checkpoint.number })
            }
            CheckpointPhase::Writing { checkpoint, .. } => {
                Some(Effect::WriteCheckpoint { run, number: checkpoint.number })
            }
        }
    }

    /// A shard has a copy of its part in memory. With the last one training goes on.
    pub(super) fn checkpoint_pinned(
        &mut self,
        number: u64,
        shard: ShardIndex,
        outcome: Result<(), TaskFault>,
        turn: &mut Turn<'_>,
    ) {
        let (shards, rest_us) = (self.state.shards as usize, self.mean_rest_us(turn.now_us));
        let Some(CheckpointPhase::Pinning { checkpoint, by }) = &mut self.state.checkpoints.making else {
            return;
        };
        if checkpoint.number != number {
            return;
        }
        if let Err(fault) = outcome {
            return self.give_checkpoint_up(number, fault, turn);
        }
        by.insert(shard);
        if by.len() == shards {
            let mut checkpoint = checkpoint.clone();
            checkpoint.rest_us = rest_us;
            self.state.checkpoints.making =
                Some(CheckpointPhase::Writing { checkpoint, by: BTreeMap::new() });
            self.grant_queue.everybody = true;
            turn.effects.extend(self.checkpoint_order());
        }
        self.changes.job_state = true;
    }

    /// How long ago the workers ended their last iterations, on average.
    fn mean_rest_us(&self, now_us: u64) -> u64 {
        let rests: Vec<u64> =
            self.active().map(|worker| now_us.saturating_sub(self.members[&worker].last_end_us)).collect();
        rests.iter().sum::<u64>() / rests.len().max(1) as u64
    }

    /// A shard has its part on disk. With the last one the checkpoint is complete.
    pub(super) fn checkpoint_written(
        &mut self,
        number: u64,
        shard: ShardIndex,
        outcome: Result<u64, TaskFault>,
        turn: &mut Turn<'_>,
    ) {
        let shards = self.state.shards as usize;
        let Some(CheckpointPhase::Writing { checkpoint, by }) = &mut self.state.checkpoints.making else {
            return;
        };
        if checkpoint.number != number {
            return;
        }
        let bytes = match outcome {
            Ok(bytes) => bytes,
            Err(fault) => return self.give_checkpoint_up(number, fault, turn),
        };
        by.insert(shard, bytes);
        self.changes.job_state = true;
        if by.len() < shards {
            return;
        }
        let (bytes, complete_us) = (by.values().sum(), turn.now_us);
        let complete = Checkpoint { bytes, complete_us, ..(**checkpoint).clone() };
        let kept = Happening::CheckpointKept {
            checkpoint: number,
            samples: complete.samples(),
            bytes: complete.bytes,
            rest_ms: complete.rest_us / 1000,
        };
        self.tell(kept, turn.now_us);
        self.state.checkpoints.making = None;
        self.state.checkpoints.failing = None;
        self.state.checkpoints.complete.push(complete);
        self.state.checkpoints.unread.clear();
        self.thin_out_checkpoints(turn.now_us);
        turn.effects.push(self.keep_checkpoints(number));
    }

    /// Has the shards remove what newer ones have taken the place of, once Redis cannot forget these any more.
    pub(super) fn remove_superseded_checkpoints(&mut self, turn: &mut Turn<'_>) {
        if self.thin_out_checkpoints(turn.now_us) {
            self.changes.job_state = true;
            let newest = self.state.checkpoints.newest().map(|newest| self.keep_checkpoints(newest.number));
            turn.effects.extend(newest);
        }
    }

    /// Leaves what is needed now, and what was needed when Redis knew as many as it may go back to. `false`: that is all.
    fn thin_out_checkpoints(&mut self, now_us: u64) -> bool {
        let complete = &self.state.checkpoints.complete;
        let durable = complete.partition_point(|checkpoint| checkpoint.is_durable(now_us));
        let needed: BTreeSet<u64> =
            (durable..=complete.len()).flat_map(|known| self.needed_of(&complete[..known])).collect();
        let before = complete.len();
        self.state.checkpoints.complete.retain(|checkpoint| needed.contains(&checkpoint.number));
        self.state.checkpoints.complete.len() < before
    }

    /// The newest ones, as many as are asked for, the one of the best evaluation, and that of the last parameters where these make
    /// way for the best.
    fn needed_of(&self, complete: &[Checkpoint]) -> BTreeSet<u64> {
        let keep = self.train().checkpoint.map_or(0, |spec| spec.keep as usize);
        let newest = complete.iter().rev().take(keep);
        let best = self.best_checkpoint_of(complete);
        let last = complete
            .iter()
            .filter(|checkpoint| self.state.evaluations.keeps_last && checkpoint.samples() == self.counted());
        newest.chain(best).chain(last).map(|checkpoint| checkpoint.number).collect()
    }

    /// The shards may remove all checkpoints up to number `through` but the complete ones.
    fn keep_checkpoints(&self, through: u64) -> Effect {
        let run = self.run();
        let unread = self.state.checkpoints.unread.iter().map(|checkpoint| checkpoint.number);
        let numbers = self.state.checkpoints.numbers().into_iter().chain(unread).collect();
        Effect::KeepCheckpoints { run, numbers, through }
    }

    /// A shard could not do its part: training goes on, and the next one comes when it is due. Where nobody asked for it, that a disk is
    /// full is told once.
    fn give_checkpoint_up(&mut self, number: u64, fault: TaskFault, turn: &mut Turn<'_>) {
        let given_up = self.state.checkpoints.making.take();
        if let Some(checkpoint) = given_up.as_ref().and_then(CheckpointPhase::checkpoint) {
            self.note_lost(checkpoint.samples(), format!("could not be kept: {}", fault.reason));
        }
        let before = self.state.checkpoints.failing.replace(fault.clone());
        let is_told = self.keeps_until_done()
            && !self.keeps_best()
            && before.is_some_and(|before| before.code == fault.code);
        if !is_told {
            self.tell(Happening::CheckpointFailed { checkpoint: number, fault }, turn.now_us);
        }
        self.grant_queue.everybody = true;
        self.changes.job_state = true;
        // What the others wrote of it would lie there until the next one is complete.
        turn.effects.push(self.keep_checkpoints(number));
    }

    /// What the shards are told of a job that is over and known no more: nobody asks for its last weights, nor for its checkpoints.
    pub(super) fn forgotten(self) -> impl Iterator<Item = Effect> {
        let close = Effect::CloseShards { run: self.run(), weights: LastWeights::Drop };
        self.state.keeping.then_some(close).into_iter().chain(self.remove_checkpoints())
    }

    /// The order to remove all checkpoints, if there may be some.
    pub(super) fn remove_checkpoints(&self) -> Option<Effect> {
        let (run, numbers) = (self.run(), Vec::new());
        let any = self.state.checkpoints.has_begun_any();
        any.then_some(Effect::KeepCheckpoints { run, numbers, through: u64::MAX })
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
            (None,    hours(4), "counts from the begin"),
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
