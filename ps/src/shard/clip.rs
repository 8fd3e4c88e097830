//! Clipping the mean of a round to a norm over all shards.
//!
//! A single machine computes the gradient of a batch, then its norm, then shortens it. To get the same on
//! many workers, the mean of the round must be shortened, not what each of them brings; and the norm is one
//! over all parameters, of which a shard holds a part. So each shard tells the others the sum of squares of
//! its part, and takes the step when it knows all of them. All add them in the same order: all shorten by the
//! same factor.
//!
//! | moment | what happens |
//! |---|---|
//! | the roster is met, something is in the round | the own sum is computed, once, and sent to the shards that ask |
//! | the roster is met, nothing is in the round | the barrier closes; the own sum is 0 |
//! | the sums of all shards are known | the mean is shortened and applied, the barrier closes |
//! | their sum is no number | nothing of the round is applied, on any shard, the barrier closes |
//! | the job is followed | the own sum is told to the standby, which computes none: it may hold chunks that are further |
//!
//! Nobody blocks meanwhile: pushes are acknowledged, and the close happens when the last sum comes in. A
//! worker that dies changes rosters as everywhere; a shard's sum is that of what it will apply, whole or
//! torn. See ADR 13.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use serde::{Deserialize, Serialize};
use syncline_rpc::{BarrierOrder, ShardFault, threads::lock};
use syncline_scheduler::sync::RoundRule;
use tracing::warn;

use super::{JobShard, job_state::JobState, standby_op::StandbyOp};

/// How many own sums are kept: a shard that applied a round can be behind by one round at most.
const KEPT_SUMS: usize = 4;

/// The factor on the mean of a round that has no norm: what was pushed has become infinite, and nothing of it
/// is applied.
pub(super) const DROPPED: f64 = 0.0;

/// Sums of squares of rounds, by the barrier that ends them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RoundNorms {
    own: BTreeMap<u64, f64>,
    /// The sums of the other shards, by round and shard.
    others: BTreeMap<u64, BTreeMap<u32, f64>>,
}

impl RoundNorms {
    /// The own sum of a round, with so many barriers closed; `None`: it is not known yet.
    fn own(&self, round: u64, closed: u64) -> Option<f64> {
        // What closed without a sum had nothing in it.
        self.own.get(&round).copied().or((round < closed).then_some(0.0))
    }

    /// The sum over all shards, in their order.
    fn total(&self, round: u64, me: u32, shards: u32) -> Option<f64> {
        let others = self.others.get(&round);
        let part = |shard| {
            if shard == me { self.own.get(&round) } else { others?.get(&shard) }
        };
        (0..shards).map(part).sum()
    }

    /// Drops sums that nobody needs any more.
    pub(super) fn prune(&mut self, closed: u64) {
        self.others = self.others.split_off(&closed);
        while self.own.len() > KEPT_SUMS {
            self.own.pop_first();
        }
    }
}

impl JobShard {
    /// Whether the mean of a round is shortened, and needs the other shards for that.
    pub fn needs_peer_norms(&self) -> bool {
        self.clip_norm.is_some() && self.shards().len() > 1
    }

    /// Position of this shard.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The factor on the mean of the round that `order` ends, [`DROPPED`] if the mean has no finite norm;
    /// `None` as long as some shard's sum is missing, on a standby also its own.
    pub(super) fn clip(&self, state: &mut JobState, order: &BarrierOrder) -> Option<f64> {
        let Some(most) = self.clip_norm.filter(|_| order.rule == RoundRule::Optimizer) else {
            return Some(1.0);
        };
        if !self.accumulated.load(Ordering::Acquire) {
            return Some(1.0);
        }
        let round = order.superstep.0;
        if !state.norms.own.contains_key(&round) {
            if self.catch_up.follows() {
                return None;
            }
            let squares = self.round_squares(state.round_weight);
            self.standby_log.record(|| StandbyOp::OwnNorm { round, squares }.entry());
            self.keep_own_norm(state, round, squares);
        }
        let norm = state.norms.total(round, self.index, self.shards().len() as u32)?.sqrt();
        if !norm.is_finite() {
            // Gradients that are numbers, with their weights, sum up to none in single precision.
            warn!(job = %self.job(), round, "the gradient of a round has no finite norm: the round is left out");
            return Some(DROPPED);
        }
        let most = f64::from(most);
        Some(if norm > most { most / norm } else { 1.0 })
    }

    /// Stores the sum of shard `from` for a round, and closes the barrier that waited for it.
    pub fn receive_norm(&self, from: u32, round: u64, squares: f64) -> Result<(), ShardFault> {
        let _changing = self.standby_log.enter();
        let mut state = self.lock_running()?;
        if round >= state.closed {
            self.standby_log.record(|| StandbyOp::Norm { from, round, squares }.entry());
            state.norms.others.entry(round).or_default().insert(from, squares);
            self.close_barriers(&mut state);
        }
        Ok(())
    }

    fn keep_own_norm(&self, state: &mut JobState, round: u64, squares: f64) {
        state.norms.prune(state.closed);
        state.norms.own.insert(round, squares);
        self.notify();
    }

    /// Stores, on a standby, what the primary has computed as the own sum of a round, and closes the barrier
    /// that waited for it.
    pub(super) fn follow_own_norm(&self, round: u64, squares: f64) -> Result<(), ShardFault> {
        let mut state = self.lock_running()?;
        if round >= state.closed {
            self.keep_own_norm(&mut state, round, squares);
            self.close_barriers(&mut state);
        }
        Ok(())
    }

    /// Waits for the own sum of a round. `present` is asked twice a second whether the caller still waits; it
    /// may block.
    pub fn wait_norm(&self, round: u64, present: impl FnMut() -> bool) -> Result<f64, ShardFault> {
        self.wait_until(present, |state| Ok(state.norms.own(round, state.closed)))
    }

    /// Sum of squares of the mean of the open round, parameters only. The order of summation is fixed.
    fn round_squares(&self, weight: f64) -> f64 {
        if self.tables.is_some() {
            return self.touched_squares(weight);
        }
        self.map_chunks(|_, chunk| lock(chunk).round_squares()).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_known_when_every_shard_has_said_its_part() {
        let mut norms = RoundNorms::default();
        assert_eq!((norms.own(0, 0), norms.own(0, 1)), (None, Some(0.0)));
        norms.own.insert(3, 1.0);
        assert_eq!((norms.own(3, 3), norms.own(2, 3), norms.own(4, 3)), (Some(1.0), Some(0.0), None));
        assert_eq!(norms.total(3, 1, 3), None);
        norms.others.entry(3).or_default().insert(0, 2.0);
        assert_eq!(norms.total(3, 1, 3), None);
        norms.others.entry(3).or_default().insert(2, 4.0);
        assert_eq!((norms.total(3, 1, 3), norms.total(4, 1, 3)), (Some(7.0), None));
        assert_eq!(RoundNorms { own: [(0, 9.0)].into(), ..RoundNorms::default() }.total(0, 0, 1), Some(9.0));
    }

    #[test]
    fn what_is_closed_is_forgotten_but_for_the_last_sums() {
        let mut norms = RoundNorms::default();
        for round in 0..100 {
            norms.own.insert(round, 1.0);
            norms.others.entry(round).or_default().insert(1, 1.0);
            norms.prune(round);
        }
        assert_eq!((norms.own.len(), norms.others.len()), (KEPT_SUMS, 1));
        assert_eq!(norms.own(99, 100), Some(1.0));
    }
}
