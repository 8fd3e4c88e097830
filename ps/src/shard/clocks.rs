//! The clocks of a job's workers, and the slowest of them.
//!
//! A worker's clock is its watermark plus a base that the engine gives it, so that one who joins late need
//! not count from zero. A pull may wait until no clock is below some number; this is the condition of stale
//! synchronous parallel training (Ho et al., NeurIPS 2013). Reading the minimum costs O(1), a push O(log n)
//! for n workers, and nothing at all as long as no roster has come.

use std::collections::BTreeMap;

use syncline_rpc::{ClockRoster, ShardFault};
use syncline_scheduler::ids::{EngineEpoch, Incarnation};

use super::{JobShard, sealed::SealedSet, standby_op::StandbyOp};

/// The clocks of the workers on the roster.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// Of the roster that is in force; `None` until one has come.
    revision: Option<u64>,
    /// Of every worker that counts.
    base: BTreeMap<Incarnation, u64>,
    /// How many of them are at each clock.
    workers_at: BTreeMap<u64, u32>,
}

impl Clocks {
    /// The lowest clock that counts. Without a roster nothing is known, so 0; an empty roster holds nobody
    /// back.
    pub(super) fn minimum(&self) -> u64 {
        match (self.revision, self.workers_at.first_key_value()) {
            (None, _) => 0,
            (Some(_), None) => u64::MAX,
            (Some(_), Some((&clock, _))) => clock,
        }
    }

    /// Of the roster that is in force; 0 until one has come.
    pub(super) fn revision(&self) -> u64 {
        self.revision.unwrap_or(0)
    }

    /// Puts a roster in force unless its revision, or a higher one, is known.
    pub(super) fn set_roster(
        &mut self,
        order: ClockRoster,
        watermarks: &BTreeMap<Incarnation, u64>,
        sealed: &SealedSet,
    ) {
        if self.revision.is_some_and(|known| known >= order.revision) {
            return;
        }
        self.revision = Some(order.revision);
        self.base = order.base;
        self.base.retain(|worker, _| !sealed.contains(*worker));
        self.workers_at.clear();
        for (worker, base) in &self.base {
            let clock = base.saturating_add(watermarks.get(worker).copied().unwrap_or(0));
            *self.workers_at.entry(clock).or_default() += 1;
        }
    }

    /// The roster in force, without those who count no more.
    pub(super) fn order(&self) -> Option<ClockRoster> {
        self.revision.map(|revision| ClockRoster { revision, base: self.base.clone() })
    }

    /// How far `worker`, at this watermark, is ahead of the lowest clock that counts.
    pub(super) fn lead(&self, worker: Incarnation, watermark: u64) -> u64 {
        let clock = self.base.get(&worker).map_or(0, |base| base.saturating_add(watermark));
        clock.saturating_sub(self.minimum())
    }

    /// The watermark of `worker` has moved.
    pub(super) fn advance(&mut self, worker: Incarnation, from: u64, to: u64) {
        if let Some(&base) = self.base.get(&worker) {
            self.decrement(base.saturating_add(from));
            *self.workers_at.entry(base.saturating_add(to)).or_default() += 1;
        }
    }

    /// `worker`, at this watermark, counts no more.
    pub(super) fn remove(&mut self, worker: Incarnation, watermark: u64) {
        if let Some(base) = self.base.remove(&worker) {
            self.decrement(base.saturating_add(watermark));
        }
    }

    fn decrement(&mut self, clock: u64) {
        if let Some(here) = self.workers_at.get_mut(&clock) {
            *here -= 1;
            if *here == 0 {
                self.workers_at.remove(&clock);
            }
        }
    }
}

impl JobShard {
    /// Sets the roster of workers whose clocks count.
    pub fn set_clock_roster(&self, epoch: EngineEpoch, order: ClockRoster) -> Result<(), ShardFault> {
        let _changing = self.standby_log.enter();
        let mut state = self.lock_running()?;
        state.fence(epoch)?;
        self.standby_log.record(|| StandbyOp::Clocks { epoch, roster: order.clone() }.entry());
        state.set_clock_roster(order);
        self.notify_if_clock_reached(&mut state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn roster(revision: u64, base: &[(u64, u64)]) -> ClockRoster {
        ClockRoster { revision, base: base.iter().map(|&(w, base)| (Incarnation(w), base)).collect() }
    }

    fn marks(of: &[(u64, u64)]) -> BTreeMap<Incarnation, u64> {
        of.iter().map(|&(w, mark)| (Incarnation(w), mark)).collect()
    }

    #[test]
    fn nothing_is_known_before_a_roster_and_nobody_counts_in_an_empty_one() {
        let mut clocks = Clocks::default();
        clocks.advance(Incarnation(1), 0, 5);
        assert_eq!(clocks.minimum(), 0);
        clocks.set_roster(roster(0, &[]), &marks(&[(1, 5)]), &SealedSet::default());
        assert_eq!(clocks.minimum(), u64::MAX);
    }

    #[test]
    fn only_a_higher_revision_replaces_a_roster_and_sealed_workers_stay_out() {
        let (mut clocks, watermarks) = (Clocks::default(), marks(&[(1, 4), (2, 7)]));
        let mut sealed = SealedSet::default();
        sealed.insert(Incarnation(3), |_| true);
        clocks.set_roster(roster(2, &[(1, 0), (2, 0), (3, 0)]), &watermarks, &sealed);
        assert_eq!(clocks.minimum(), 4);
        for late in [0, 1, 2] {
            clocks.set_roster(roster(late, &[(2, 0)]), &watermarks, &sealed);
            assert_eq!(clocks.minimum(), 4, "revision {late}");
        }
        clocks.set_roster(roster(3, &[(2, 0), (9, 6)]), &watermarks, &sealed);
        assert_eq!(clocks.minimum(), 6, "the joiner begins at its base");
    }

    proptest! {
        #[test]
        fn the_minimum_is_the_least_of_all_clocks(
            bases in prop::collection::vec(0u64..5, 1..8),
            steps in prop::collection::vec((any::<prop::sample::Index>(), 0u64..5), 0..60),
        ) {
            let mut clocks = Clocks::default();
            let named: Vec<(u64, u64)> = (0..).zip(bases.iter().copied()).collect();
            clocks.set_roster(roster(0, &named), &BTreeMap::new(), &SealedSet::default());
            // Watermark of each worker; `None` once it is removed.
            let mut marks: Vec<Option<u64>> = vec![Some(0); bases.len()];
            for (who, ahead) in steps {
                let at = who.index(marks.len());
                let worker = Incarnation(at as u64);
                match marks[at] {
                    Some(mark) if ahead == 0 => {
                        clocks.remove(worker, mark);
                        marks[at] = None;
                    }
                    Some(mark) => {
                        clocks.advance(worker, mark, mark + ahead);
                        marks[at] = Some(mark + ahead);
                    }
                    None => clocks.advance(worker, 0, ahead),
                }
                let alive = marks.iter().zip(&bases).filter_map(|(mark, base)| Some((*mark)? + base));
                prop_assert_eq!(clocks.minimum(), alive.min().unwrap_or(u64::MAX));
            }
        }
    }
}
