//! Batch sizes without prediction: samples move from the straggler to the leader, step by step.
//!
//! The rule of LB-BSP for accelerators (Chen et al., SoCC 2020). Over a window of rounds, which averages out
//! noise, the worker with the longest mean time gives a step of its batch to the one with the shortest whose
//! memory is not full. When that goes too far, the step is halved and the window doubled; a single sample
//! that goes too far ends it, until times drift apart again. The total stays constant. The constants are
//! ours: the published abstracts name none.
//!
//! A move has gone too far if its receiver is now as slow as its giver had been, and is then taken back; or
//! if the next move would be the same one backwards. While speeds are constant no assignment comes up a
//! second time except by taking back, because each move that stays makes the slower of its two workers
//! faster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Bounds, Cost, assign};
use crate::ids::Incarnation;

/// The first step is the mean batch divided by this.
const FIRST_STEP_PART: u64 = 8;
/// Rounds of the first window, and of the longest.
const FIRST_WINDOW: u32 = 4;
const LONGEST_WINDOW: u32 = 32;
/// Spread, as (longest − shortest) / mean time, that is not worth a move; and by how much it has to grow
/// after the batches have settled before they are moved again.
const EVEN: f64 = 0.03;
const APART: f64 = 0.05;

/// One worker's part in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTime {
    /// Whose part it is.
    pub worker: Incarnation,
    /// Samples of its iteration.
    pub batch: u32,
    /// How long the iteration took without waiting, µs.
    pub us: u64,
    /// Its bounds as they are now: where its batch lies outside, the total is shared out anew.
    pub bounds: Bounds,
}

/// A move of samples, to be judged after the next window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Move {
    from: Incarnation,
    to: Incarnation,
    samples: u32,
    /// Mean time of the giver, and the spread, before.
    giver_us: f64,
    spread: f64,
}

/// The batches of a job's workers, and how far their adjustment has come. Stored with the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stepping {
    total: u64,
    batches: BTreeMap<Incarnation, u32>,
    step: u32,
    window: u32,
    /// Rounds of the open window, and the sum of each worker's times.
    rounds: u32,
    sums_us: BTreeMap<Incarnation, u64>,
    last: Option<Move>,
    /// The spread when no move was left to try.
    settled: Option<f64>,
    /// Whom all others waited for in the first window after that.
    #[serde(default)]
    settled_straggler: Option<Incarnation>,
}

impl Stepping {
    /// Hands out `total` samples per round, at first equally.
    pub fn new(total: u64) -> Self {
        Self {
            total,
            batches: BTreeMap::new(),
            step: 1,
            window: FIRST_WINDOW,
            rounds: 0,
            sums_us: BTreeMap::new(),
            last: None,
            settled: None,
            settled_straggler: None,
        }
    }

    /// Samples per round.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A round is over; `times` holds each of its workers once. Returns the batches of the next rounds if
    /// they change.
    ///
    /// A new worker gets the mean batch, and the others shrink or grow in proportion. A round in which
    /// somebody had another batch than it should, such as the last of an epoch, is not counted. Cost O(n
    /// log n).
    pub fn round(&mut self, times: &[RoundTime]) -> Option<BTreeMap<Incarnation, u32>> {
        if times.is_empty() {
            return None;
        }
        let unchanged = |t: &RoundTime| self.batches.get(&t.worker).is_some_and(|&b| t.bounds.clamp(b) == b);
        if times.len() != self.batches.len() || !times.iter().all(unchanged) {
            self.redistribute(times);
            return Some(self.batches.clone());
        }
        if times.iter().any(|t| self.batches.get(&t.worker) != Some(&t.batch)) {
            return None;
        }
        for timed in times {
            let sum_us = self.sums_us.entry(timed.worker).or_default();
            *sum_us = sum_us.saturating_add(timed.us);
        }
        self.rounds += 1;
        if self.rounds < self.window {
            return None;
        }
        let moved = self.adjust(times);
        self.open_window();
        moved.then(|| self.batches.clone())
    }

    /// Workers came, went, or have other bounds: shares out the total and starts again.
    fn redistribute(&mut self, times: &[RoundTime]) {
        let kept: Vec<f64> =
            times.iter().filter_map(|t| self.batches.get(&t.worker)).map(|&b| f64::from(b)).collect();
        let mean = kept.iter().sum::<f64>() / kept.len().max(1) as f64;
        let weigh = |t: &RoundTime| {
            let weight = self.batches.get(&t.worker).map_or(mean, |&batch| f64::from(batch)).max(1.0);
            (Cost::Proportional { us_per_sample: 1.0 / weight }, t.bounds)
        };
        let weighed: Vec<(Cost, Bounds)> = times.iter().map(weigh).collect();
        self.batches = times.iter().map(|t| t.worker).zip(assign(self.total, &weighed)).collect();
        self.start();
    }

    /// Back to large steps and short windows.
    fn start(&mut self) {
        let mean = self.total / self.batches.len().max(1) as u64;
        self.step = u32::try_from(mean / FIRST_STEP_PART).unwrap_or(u32::MAX).max(1);
        self.window = FIRST_WINDOW;
        self.last = None;
        (self.settled, self.settled_straggler) = (None, None);
        self.open_window();
    }

    fn open_window(&mut self) {
        self.rounds = 0;
        self.sums_us.clear();
    }

    /// The window is full: judges the last move and makes the next. Returns whether batches changed.
    fn adjust(&mut self, times: &[RoundTime]) -> bool {
        let mean_us = |worker: Incarnation| {
            self.sums_us.get(&worker).map_or(0.0, |&us| us as f64 / f64::from(self.rounds))
        };
        let slower = |a: &&RoundTime, b: &&RoundTime| mean_us(a.worker).total_cmp(&mean_us(b.worker));
        let not_full = times.iter().filter(|t| t.batch < t.bounds.most());
        let (Some(straggler), Some(leader)) = (times.iter().max_by(slower), not_full.min_by(slower)) else {
            return false;
        };
        let straggler_us = mean_us(straggler.worker);
        let all_us = times.iter().map(|t| mean_us(t.worker)).sum::<f64>() / times.len() as f64;
        let spread = (straggler_us - mean_us(leader.worker)) / all_us.max(1.0);
        let receiver_us = self.last.as_ref().map(|last| mean_us(last.to));

        if let Some(settled) = self.settled {
            // One with the smallest batch that there may be can be as slow as it likes; when it is quick
            // again, others are waited for.
            let before = *self.settled_straggler.get_or_insert(straggler.worker);
            let is_as_before = before == straggler.worker || spread <= EVEN + APART;
            if is_as_before && spread <= settled + APART {
                return false;
            }
            self.start();
        }
        if let Some((last, receiver_us)) = self.last.take().zip(receiver_us) {
            if receiver_us >= last.giver_us {
                self.give(last.to, last.from, last.samples);
                self.refine(last.spread);
                return true;
            }
            if (straggler.worker, leader.worker) == (last.to, last.from) {
                self.refine(spread);
            }
        }
        let samples = self
            .step
            .min(straggler.batch.saturating_sub(straggler.bounds.min))
            .min(leader.bounds.most() - leader.batch);
        if self.settled.is_none() && (spread <= EVEN || samples == 0) {
            self.settled = Some(spread);
        }
        if self.settled.is_some() {
            return false;
        }
        self.give(straggler.worker, leader.worker, samples);
        self.last =
            Some(Move { from: straggler.worker, to: leader.worker, samples, giver_us: straggler_us, spread });
        true
    }

    fn give(&mut self, from: Incarnation, to: Incarnation, samples: u32) {
        if let Some(batch) = self.batches.get_mut(&from) {
            *batch -= samples;
        }
        if let Some(batch) = self.batches.get_mut(&to) {
            *batch += samples;
        }
    }

    /// The last move went too far: smaller steps, longer windows, and no more where steps cannot be smaller.
    fn refine(&mut self, spread: f64) {
        if self.step == 1 {
            self.settled = Some(spread);
        }
        self.step = (self.step / 2).max(1);
        self.window = (self.window * 2).min(LONGEST_WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Bounds = Bounds { min: 1, max: u32::MAX };

    #[test]
    fn a_round_of_other_batches_is_not_counted() {
        let timed = |batch, us| RoundTime { worker: Incarnation(1), batch, us, bounds: ANY };
        let slow = |batch, us| RoundTime { worker: Incarnation(2), ..timed(batch, us) };
        let mut stepping = Stepping::new(64);
        assert!(stepping.round(&[timed(1, 1), slow(1, 1)]).is_some());
        for _ in 0..FIRST_WINDOW - 1 {
            assert_eq!(stepping.round(&[timed(32, 100), slow(32, 200)]), None);
        }
        assert_eq!(stepping.round(&[timed(32, 100), slow(3, 900)]), None);
        let moved = stepping.round(&[timed(32, 100), slow(32, 200)]);
        assert_eq!(moved, Some([(Incarnation(1), 36), (Incarnation(2), 28)].into()));
        assert_eq!(stepping.round(&[]), None);
    }
}
