//! How a checkpoint is taken: when one is due, and the rest for it.
//!
//! A job comes to rest as at the end of its samples: nothing more is granted, an open superstep ends where
//! everybody is, and its barrier closes. Then every sample that was handed out is counted, so that cursor and
//! counters say exactly what is in the parameters. The shards copy these; training goes on, and the copies
//! are written meanwhile. A checkpoint counts once every shard has said that its part is on disk.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    checkpoints::{Checkpoint, CheckpointPhase},
    effects::Effect,
    event::Happening,
    inputs::TaskFault,
    job::Job,
    member::Membership,
    progress::Progress,
    turn::Turn,
};
use crate::ids::ShardIndex;

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
        self.unattached.is_empty()
            && self.supersteps.values().all(|superstep| superstep.is_closed())
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
            // They may hold more than is known.
            _ if !self.unattached.is_empty() => None,
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
        turn.effects.push(self.retain_checkpoints(number));
    }

    /// A shard could not do its part: training goes on, and the next one comes when it is due. Where nobody
    /// asked for it, that a disk is full is told once.
    fn give_checkpoint_up(&mut self, number: u64, fault: TaskFault, turn: &mut Turn<'_>) {
        let given_up = self.state.checkpoints.making.take();
        if let Some(checkpoint) = given_up.as_ref().and_then(CheckpointPhase::checkpoint) {
            self.note_lost(checkpoint.samples(), format!("could not be kept: {}", fault.reason));
        }
        let before = self.state.checkpoints.failing.replace(fault.clone());
        let is_same = before.is_some_and(|before| before.code == fault.code);
        let is_repeated = self.end_was_tried();
        let is_told = is_same && (is_repeated || self.keeps_until_done() && !self.keeps_best());
        self.try_end_later(&fault, turn.now_us);
        if !is_told {
            self.tell(Happening::CheckpointFailed { checkpoint: number, fault }, turn.now_us);
        }
        self.grant_queue.everybody = true;
        self.changes.job_state = true;
        // What the others wrote of it would lie there until the next one is complete.
        turn.effects.push(self.retain_checkpoints(number));
    }
}
