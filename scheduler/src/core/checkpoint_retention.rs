//! Which checkpoints stay on the shards' disks.

use std::collections::BTreeSet;

use super::{
    checkpoints::Checkpoint,
    effects::{Effect, LastWeights},
    job::Job,
    shard_protocol::Retention,
    turn::Turn,
};

/// So long after a checkpoint is complete Redis may still go back to before it: `appendfsync everysec` may be
/// 2 s behind, and a turn with its commits takes up to a second where it is not discounted.
const DURABLE_AFTER_US: u64 = 5_000_000;

impl Checkpoint {
    /// Whether no crash of Redis makes it forget this one.
    fn is_durable(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.complete_us) >= DURABLE_AFTER_US
    }
}

impl Job {
    /// Has the shards remove what newer ones have taken the place of, once Redis cannot forget these any
    /// more.
    pub(super) fn remove_superseded_checkpoints(&mut self, turn: &mut Turn<'_>) {
        if self.thin_out_checkpoints(turn.now_us) {
            self.changes.job_state = true;
            let newest = self.state.checkpoints.newest().map(|newest| self.retain_checkpoints(newest.number));
            turn.effects.extend(newest);
        }
    }

    /// Leaves what is needed now, and what was needed when Redis knew as many as it may go back to. `false`:
    /// that is all.
    pub(super) fn thin_out_checkpoints(&mut self, now_us: u64) -> bool {
        let complete = &self.state.checkpoints.complete;
        let durable = complete.partition_point(|checkpoint| checkpoint.is_durable(now_us));
        let needed: BTreeSet<u64> =
            (durable..=complete.len()).flat_map(|known| self.needed_of(&complete[..known])).collect();
        let before = complete.len();
        self.state.checkpoints.complete.retain(|checkpoint| needed.contains(&checkpoint.number));
        self.state.checkpoints.complete.len() < before
    }

    /// The newest ones, as many as are asked for, the one of the best evaluation, and that of the last
    /// parameters where these make way for the best.
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
    pub(super) fn retain_checkpoints(&self, through: u64) -> Effect {
        let run = self.run();
        let unread = self.state.checkpoints.unread.iter().map(|checkpoint| checkpoint.number);
        let keep = self.state.checkpoints.numbers().into_iter().chain(unread).collect();
        Effect::RetainCheckpoints { run, retention: Retention::Thin { keep, through } }
    }

    /// What the shards are told of a job that is over and known no more: nobody asks for its last weights,
    /// nor for its checkpoints.
    pub(super) fn forgotten(self) -> impl Iterator<Item = Effect> {
        let close = Effect::CloseShards { run: self.run(), weights: LastWeights::Drop };
        self.state.keeping.then_some(close).into_iter().chain(self.remove_checkpoints())
    }

    /// The order to remove all checkpoints, if there may be some.
    pub(super) fn remove_checkpoints(&self) -> Option<Effect> {
        let (run, retention) = (self.run(), Retention::Last { keep: Vec::new() });
        let any = self.state.checkpoints.has_begun_any();
        any.then_some(Effect::RetainCheckpoints { run, retention })
    }
}
