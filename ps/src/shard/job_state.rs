//! The state of one job besides its parameters: watermarks, counters, barrier orders, the pinned version.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use syncline_rpc::{BarrierOrder, ClockRoster, ClosedBarrier, ShardFault, ShardProgress};
use syncline_scheduler::{
    ids::{EngineEpoch, Incarnation, Superstep},
    sync::PushMode,
};

use super::{
    PushHeader, ReadCondition, checkpoint::Checkpoints, clip::RoundNorms, clocks::Clocks, sealed::SealedSet,
};

/// Closed barriers that are remembered for `closed(seen)`: many more than close while an answer waits for
/// further ones.
const MAX_RECORDS: usize = 1_024;

/// Everything of a job that is not in a chunk or in one incarnation's filter.
#[derive(Default)]
pub(super) struct JobState {
    /// Highest engine epoch that gave an order about this job.
    pub epoch: EngineEpoch,
    /// Published copies of the filters' watermarks: what rosters are compared with.
    pub watermarks: BTreeMap<Incarnation, u64>,
    /// Incarnations from which nothing is taken any more.
    pub sealed: SealedSet,
    /// Whose pushes others may wait for.
    pub clocks: Clocks,
    /// Barriers closed so far.
    pub closed: u64,
    /// Newest version that the mean of a round went into; 0 if there was none.
    pub round_version: u64,
    /// Pushes that are in completely.
    pub pushes: u64,
    /// In a job with tables: weight of the pushes of which anything is in the open round, and of those that
    /// bring it nothing.
    pub round_weight: f64,
    /// Orders for barriers that are still open, by superstep.
    pub orders: BTreeMap<u64, BarrierOrder>,
    /// Of rounds that are to be shortened.
    pub norms: RoundNorms,
    /// Newest version that was kept.
    pub pinned: Option<PinnedValues>,
    /// Copies at moments of rest.
    pub checkpoints: Checkpoints,
    /// Lowest clock that a blocked pull waits for.
    lowest_awaited_clock: Option<u64>,
    pub records: VecDeque<ClosedRecord>,
}

/// The values of a version, which is the number beside them.
pub(super) type PinnedValues = (u64, Arc<Vec<f32>>);

/// A barrier that has closed.
pub(super) struct ClosedRecord {
    pub superstep: u64,
    pub at: Instant,
    pub pushes: u64,
}

impl JobState {
    pub(super) fn new(epoch: EngineEpoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Counts the weight of a push of rows in the open round.
    pub(super) fn weigh_rows(&mut self, header: &PushHeader) {
        if header.mode == PushMode::Accumulate && !header.is_empty() {
            self.round_weight += f64::from(header.weight);
        }
    }

    pub(super) fn progress(&self) -> ShardProgress {
        ShardProgress {
            closed: self.closed,
            watermarks: self.watermarks.clone(),
            orders: self.orders.values().cloned().collect(),
            clock_revision: self.clocks.revision(),
        }
    }

    /// Refuses orders of an engine whose term is over.
    pub(super) fn fence(&mut self, given: EngineEpoch) -> Result<(), ShardFault> {
        if given < self.epoch {
            return Err(ShardFault::Fenced { given, highest: self.epoch });
        }
        self.epoch = given;
        Ok(())
    }

    /// Puts a roster of clocks in force unless a higher revision is known.
    pub(super) fn set_clock_roster(&mut self, order: ClockRoster) {
        self.clocks.set_roster(order, &self.watermarks, &self.sealed);
    }

    /// Whether a pull can be served now. If it must wait for a clock, that clock is remembered, so that the
    /// push which reaches it wakes the pull.
    pub(super) fn poll_condition(&mut self, condition: ReadCondition) -> bool {
        let (closed, clock) = match condition {
            ReadCondition::Version { closed, min_clock } => (closed, min_clock),
            ReadCondition::Pinned(version) => (version, 0),
        };
        let reached = self.clocks.minimum() >= clock;
        if !reached {
            self.lowest_awaited_clock =
                Some(self.lowest_awaited_clock.map_or(clock, |lowest| lowest.min(clock)));
        }
        reached && self.closed >= closed
    }

    /// Whether the lowest awaited clock is reached; forgets it then. A pull that goes on waiting polls again.
    pub(super) fn take_reached_clock(&mut self) -> bool {
        self.lowest_awaited_clock.take_if(|clock| self.clocks.minimum() >= *clock).is_some()
    }

    /// Keeps an order unless its barrier is closed or a higher revision is known.
    pub(super) fn add_order(&mut self, order: BarrierOrder) {
        let known = self.orders.get(&order.superstep.0);
        if order.superstep.0 >= self.closed && known.is_none_or(|k| k.revision < order.revision) {
            self.orders.insert(order.superstep.0, order);
        }
    }

    /// The order of the next barrier if its roster is met.
    pub(super) fn next_to_close(&self) -> Option<BarrierOrder> {
        let order = self.orders.get(&self.closed)?;
        let reached =
            |(worker, last): (&Incarnation, &u64)| *last <= self.watermarks.get(worker).copied().unwrap_or(0);
        order.roster.iter().all(reached).then(|| order.clone())
    }

    /// Records that the next barrier has closed: from here on its version exists.
    pub(super) fn record_close(&mut self) {
        self.records.push_back(ClosedRecord {
            superstep: self.closed,
            at: Instant::now(),
            pushes: self.pushes,
        });
        if self.records.len() > MAX_RECORDS {
            self.records.pop_front();
        }
        self.orders.remove(&self.closed);
        self.closed += 1;
    }

    /// Seals an incarnation. Returns those that are sealed for long: their filters may go, their watermarks
    /// have before.
    pub(super) fn seal(&mut self, worker: Incarnation) -> Vec<Incarnation> {
        let Self { sealed, orders, watermarks, .. } = self;
        // A roster may still count on what came in before the seal.
        let outdated = sealed.insert(worker, |w| orders.values().any(|order| order.roster.contains_key(&w)));
        for worker in &outdated.watermarks {
            watermarks.remove(worker);
        }
        outdated.filters
    }

    /// Remembered barriers beyond the first `seen`.
    pub(super) fn closed_since(&self, seen: u64) -> Vec<ClosedBarrier> {
        let fresh = self.records.iter().filter(|r| r.superstep >= seen);
        fresh
            .map(|r| ClosedBarrier {
                superstep: Superstep(r.superstep),
                closed_ago_us: r.at.elapsed().as_micros() as u64,
                pushes: r.pushes,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::sync::RoundRule;

    use super::*;

    fn order(superstep: u64, revision: u32, roster: &[(u64, u64)]) -> BarrierOrder {
        BarrierOrder {
            superstep: Superstep(superstep),
            revision,
            roster: roster.iter().map(|&(w, k)| (Incarnation(w), k)).collect(),
            rule: RoundRule::Optimizer,
            learning_rate: 0.1,
            pin: false,
        }
    }

    #[test]
    fn barriers_close_in_the_order_of_supersteps() {
        let mut state = JobState::default();
        state.add_order(order(1, 0, &[]));
        assert!(state.next_to_close().is_none(), "barrier 0 comes first");
        state.add_order(order(0, 0, &[(7, 2)]));
        assert!(state.next_to_close().is_none(), "w7 has pushed nothing");
        state.watermarks.insert(Incarnation(7), 2);
        for superstep in 0..2 {
            assert_eq!(state.next_to_close().unwrap().superstep.0, superstep);
            state.record_close();
        }
        assert!(state.next_to_close().is_none());
    }

    #[test]
    fn only_a_higher_revision_replaces_a_roster() {
        let mut state = JobState::default();
        state.add_order(order(0, 1, &[(1, 1)]));
        state.add_order(order(0, 0, &[]));
        state.add_order(order(0, 1, &[]));
        assert!(state.next_to_close().is_none());
        state.add_order(order(0, 2, &[]));
        assert_eq!(state.next_to_close().unwrap().revision, 2);
    }

    #[test]
    fn pulls_are_woken_only_for_a_clock_that_one_of_them_waits_for() {
        let (mut state, slow) = (JobState::default(), Incarnation(1));
        state.set_clock_roster(ClockRoster { revision: 0, base: [(slow, 0)].into() });
        let push = |state: &mut JobState, seq: u64| {
            state.watermarks.insert(slow, seq);
            state.clocks.advance(slow, seq - 1, seq);
            state.take_reached_clock()
        };
        assert!(!push(&mut state, 1), "nobody waits");
        let far = ReadCondition::Version { closed: 0, min_clock: 4 };
        assert!(!state.poll_condition(far));
        assert!(!state.poll_condition(ReadCondition::Version { closed: 0, min_clock: 3 }));
        assert!(!push(&mut state, 2));
        assert!(push(&mut state, 3));
        assert!(!state.poll_condition(far), "woken, and noted down again");
        assert!(push(&mut state, 4));
        assert!(!push(&mut state, 5));
        assert!(
            !state.poll_condition(ReadCondition::Version { closed: 1, min_clock: 5 }),
            "no barrier has closed"
        );
        assert!(!push(&mut state, 6), "a close wakes those who wait for one");
    }

    #[test]
    fn the_last_1024_closed_barriers_are_remembered() {
        let mut state = JobState::default();
        for _ in 0..2_000 {
            state.record_close();
        }
        assert_eq!(state.closed_since(0).len(), 1_024);
        let recent = state.closed_since(1_998);
        assert_eq!(recent.iter().map(|r| r.superstep.0).collect::<Vec<_>>(), [1_998, 1_999]);
        assert!(state.closed_since(2_000).is_empty());
    }
}
