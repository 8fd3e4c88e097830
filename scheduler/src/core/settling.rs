//! What becomes of the parameters of a training that is over, before anything that follows sees them.
//!
//! Where a job has checkpoints that outlive it, its last parameters become one, which stays when the job is
//! done: a longer training can go on from there. Where the parameters of the best evaluation are handed on,
//! these come into their place.

use super::{
    best_parameters::HandedOn,
    effects::Effect,
    inputs::TaskFault,
    job::Job,
    records::{JobState, Phase},
    shard_protocol::Retention,
    turn::Turn,
};
use crate::graph::TaskId;

/// Most tries to write the checkpoint of an end, each a while after the one before: some ten minutes.
const MAX_END_TRIES: u32 = 15;

impl Job {
    /// Decides with which parameters a training ends that is over. `false`: the shards have still to write
    /// them, or to open them.
    pub(super) fn settle_parameters(&mut self, turn: &mut Turn<'_>) -> bool {
        if self.state.evaluations.handed_on != HandedOn::Undecided {
            return true;
        }
        // What is being written may be the best, or the last.
        if self.is_writing_its_end() {
            return false;
        }
        let best = self.better_than_last();
        if (best.is_some() || self.keeps_end()) && self.keep_last(turn) {
            return false;
        }
        if let Some(best) = best {
            self.open_best(best, "training is over, and its last parameters are not the best", turn);
            return false;
        }
        if self.train().evaluate.is_some() {
            self.state.evaluations.handed_on = HandedOn::Last;
            self.changes.job_state = true;
        }
        true
    }

    /// Whether the shards write a checkpoint that a training which is over waits for.
    pub(super) fn is_writing_its_end(&self) -> bool {
        (self.keeps_best() || self.keeps_end())
            && self.state.cursor.is_exhausted()
            && self.state.checkpoints.making.is_some()
    }

    /// What it waits for then, in words.
    pub(super) fn waits_for_writing(&self) -> &'static str {
        match (self.state.evaluations.keeps_last, self.better_than_last()) {
            (true, Some(_)) => "the shards, which write the last parameters before they go back to the best",
            (true, None) => "the shards, which write the last parameters as a checkpoint",
            (false, _) if self.keeps_best() => "the shards, which write parameters that may be the best",
            (false, _) => "the shards, which write a checkpoint",
        }
    }

    /// Removes the checkpoints of a job that is done, once its weights are written: until then they are all
    /// that there is beside the memory of the shards. The newest stays, if it has had any that outlive
    /// it: that of its last parameters, unless these could not be written, or it trained for a task.
    pub(super) fn thin_out_at_end(&mut self, effects: &mut Vec<Effect>) {
        // A task has the weights: the thousand trials of a sweep would fill the disks of the shards.
        let stays = self.keeps_end() && self.state.trains_for.is_none();
        if !self.has_settled() {
            return;
        }
        let checkpoints = &mut self.state.checkpoints;
        let newest = checkpoints.complete.pop().filter(|_| stays);
        checkpoints.complete = newest.into_iter().collect();
        if !stays {
            // Nobody misses one that would be removed now.
            checkpoints.failing = None;
        }
        effects.extend(self.checkpoints_at_end());
    }

    /// What the shards keep of a job from which no other goes on but with what it leaves.
    pub(super) fn checkpoints_at_end(&self) -> Option<Effect> {
        let (run, keep) = (self.run(), self.state.checkpoints.numbers());
        self.has_settled().then_some(Effect::RetainCheckpoints { run, retention: Retention::Last { keep } })
    }

    /// Whether it is over, and nobody goes on from where it was: it is done and its weights are written, or
    /// it was a trial whose task begins anew, which did not ask for checkpoints itself.
    fn has_settled(&self) -> bool {
        let JobState { phase, keeping, checkpoints, trains_for, .. } = &self.state;
        let is_settled = match phase {
            Phase::Done => true,
            Phase::Failed { .. } | Phase::Canceled => trains_for.is_some() && self.keeps_until_done(),
            Phase::Queued | Phase::Opening | Phase::Running => false,
        };
        is_settled && !keeping && checkpoints.has_begun_any()
    }

    /// Whether its last parameters stay as a checkpoint.
    fn keeps_end(&self) -> bool {
        self.train().checkpoint.is_some_and(|spec| !spec.until_done)
    }

    /// Whether it has checkpoints only as long as it trains.
    pub(super) fn keeps_until_done(&self) -> bool {
        self.train().checkpoint.is_some_and(|spec| spec.until_done)
    }

    /// Has the shards keep what a training has come to. `false`: there is nothing to wait for.
    fn keep_last(&mut self, turn: &mut Turn<'_>) -> bool {
        let is_first = !std::mem::replace(&mut self.state.evaluations.keeps_last, true);
        if self.state.checkpoints.holds(self.counted()) {
            return false;
        }
        let is_again = self.end_was_tried();
        let waits = is_again && self.is_postponed(&TaskId::Node(self.train_node().clone()), turn.now_us);
        if (is_first || is_again) && !waits {
            self.pin_checkpoint(turn);
        }
        is_first || is_again
    }

    /// Whether the checkpoint of its end could not be written, and is to be tried again.
    pub(super) fn end_was_tried(&self) -> bool {
        self.state.retries.contains_key(self.train_node())
    }

    /// A disk that is full now may have room in a minute, and who asked for checkpoints would miss that of
    /// the end. Where nobody did, or it has none for minutes, that is no reason to hand on worse
    /// parameters, or to go on forever.
    pub(super) fn try_end_later(&mut self, fault: &TaskFault, now_us: u64) {
        if !self.keeps_end() || !self.state.evaluations.keeps_last {
            return;
        }
        // The mean over workers that may be gone before it ends.
        self.state.loss = self.loss();
        let node = self.train_node().clone();
        self.count_failure(&node, fault, now_us);
        if self.state.retries[&node].failures >= MAX_END_TRIES {
            self.state.retries.remove(&node);
        }
    }
}
