//! Clocks: how many iterations each worker has finished, in the order of their numbers.
//!
//! A worker that joins starts at the lowest clock, so that nobody waits for work that was handed out before
//! it came.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::Incarnation;

/// One worker's clock, stored with the worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Pushes received, plus the clock at which the worker joined: t in the papers.
    pub pushes: u64,
    /// Iterations granted, plus the clock at which the worker joined; never below `pushes`.
    pub granted: u64,
    /// Iterations that DSSP still allows beyond its lower threshold: r in the paper.
    pub extra: u64,
    /// Whether the last push was answered with "wait".
    pub held: bool,
    /// Time of the latest push, on the engine's clock; `None` before the first.
    pub last_push_us: Option<u64>,
    /// Time of the push before that; `None` before the second.
    pub previous_push_us: Option<u64>,
}

impl Clock {
    /// Time between the last two pushes.
    pub fn interval_us(&self) -> Option<u64> {
        Some(self.last_push_us?.saturating_sub(self.previous_push_us?))
    }
}

/// The clocks of all workers that take part. Reading the lowest and the highest costs O(log n), as does a
/// push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clocks {
    of: BTreeMap<Incarnation, Clock>,
    by_pushes: BTreeSet<(u64, Incarnation)>,
    by_granted: BTreeSet<(u64, Incarnation)>,
}

impl Clocks {
    /// Takes in a worker with the clock that everybody else has reached or been granted, or with the one it
    /// had before. Nobody who was granted an iteration already waits for the new one.
    pub fn join(&mut self, worker: Incarnation, before: Option<Clock>) {
        self.leave(worker);
        let lowest = self.lowest_granted().unwrap_or(0);
        let clock = before.unwrap_or(Clock { pushes: lowest, granted: lowest, ..Clock::default() });
        self.by_pushes.insert((clock.pushes, worker));
        self.by_granted.insert((clock.granted, worker));
        self.of.insert(worker, clock);
    }

    /// Forgets a worker; returns its last clock.
    pub fn leave(&mut self, worker: Incarnation) -> Option<Clock> {
        let clock = self.of.remove(&worker)?;
        self.by_pushes.remove(&(clock.pushes, worker));
        self.by_granted.remove(&(clock.granted, worker));
        Some(clock)
    }

    /// One worker's clock.
    pub fn get(&self, worker: Incarnation) -> Option<&Clock> {
        self.of.get(&worker)
    }

    /// The worker with the lowest clock, the lowest id among equals, and its clock.
    pub fn slowest(&self) -> Option<(Incarnation, u64)> {
        self.by_pushes.first().map(|&(pushes, worker)| (worker, pushes))
    }

    /// The lowest clock.
    pub fn lowest(&self) -> Option<u64> {
        self.by_pushes.first().map(|&(pushes, _)| pushes)
    }

    /// The highest clock.
    pub fn fastest(&self) -> Option<u64> {
        self.by_pushes.last().map(|&(pushes, _)| pushes)
    }

    /// The lowest clock that is granted to everybody.
    pub fn lowest_granted(&self) -> Option<u64> {
        self.by_granted.first().map(|&(granted, _)| granted)
    }

    /// How far `worker` is ahead of the slowest.
    pub fn lead(&self, worker: Incarnation) -> u64 {
        let own = self.of.get(&worker).map_or(0, |c| c.pushes);
        own.saturating_sub(self.lowest().unwrap_or(0))
    }

    /// Counts a push of `worker`.
    pub fn push(&mut self, worker: Incarnation, at_us: u64) {
        let Some(clock) = self.of.get_mut(&worker) else { return };
        self.by_pushes.remove(&(clock.pushes, worker));
        clock.pushes += 1;
        clock.previous_push_us = clock.last_push_us.replace(at_us);
        self.by_pushes.insert((clock.pushes, worker));
        if clock.granted < clock.pushes {
            self.set_granted(worker, |granted| granted + 1);
        }
    }

    /// Counts an iteration that was granted to `worker`.
    pub fn grant(&mut self, worker: Incarnation) {
        self.set_granted(worker, |granted| granted + 1);
    }

    fn set_granted(&mut self, worker: Incarnation, change: impl FnOnce(u64) -> u64) {
        let Some(clock) = self.of.get_mut(&worker) else { return };
        self.by_granted.remove(&(clock.granted, worker));
        clock.granted = change(clock.granted);
        self.by_granted.insert((clock.granted, worker));
    }

    /// Writes down what was decided about a worker's next iterations.
    pub(super) fn set_allowance(&mut self, worker: Incarnation, extra: u64, held: bool) {
        if let Some(clock) = self.of.get_mut(&worker) {
            (clock.extra, clock.held) = (extra, held);
        }
    }

    /// Number of workers.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether nobody takes part.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// All workers, in the order of their incarnations.
    pub fn iter(&self) -> impl Iterator<Item = (Incarnation, &Clock)> {
        self.of.iter().map(|(worker, clock)| (*worker, clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);
    const C: Incarnation = Incarnation(3);

    #[test]
    fn a_joiner_starts_at_the_lowest_clock_and_comes_back_with_its_own() {
        let mut clocks = Clocks::default();
        clocks.join(A, None);
        clocks.join(B, None);
        for at in 1..=3 {
            clocks.push(A, at);
        }
        clocks.push(B, 4);
        clocks.join(C, None);
        assert_eq!(clocks.get(C).unwrap().pushes, 1);
        assert_eq!((clocks.slowest(), clocks.fastest()), (Some((B, 1)), Some(3)));
        assert_eq!((clocks.lead(A), clocks.lead(B)), (2, 0));
        let before = clocks.leave(A);
        assert_eq!(clocks.fastest(), Some(1));
        clocks.join(A, before);
        assert_eq!(clocks.fastest(), Some(3));
    }

    #[test]
    fn grants_run_ahead_of_pushes_and_never_behind() {
        let mut clocks = Clocks::default();
        clocks.join(A, None);
        clocks.join(B, None);
        clocks.grant(A);
        clocks.grant(A);
        assert_eq!(clocks.lowest_granted(), Some(0));
        clocks.push(B, 7);
        assert_eq!((clocks.lowest_granted(), clocks.get(B).unwrap().granted), (Some(1), 1));
        assert_eq!(clocks.get(A).unwrap().granted, 2);
    }
}
