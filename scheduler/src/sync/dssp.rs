//! Dynamic stale synchronous parallel (Zhao et al., ICDCS 2019, arXiv:1908.11848): SSP whose threshold moves
//! between two bounds, chosen for the fastest worker whenever it would have to wait.
//!
//! Algorithm 1, on a push of p that makes its clock t: with extra iterations left, one is used up; else if
//! t − min t ≤ s_L it goes on; else, if p is the fastest, the controller may grant r extra iterations; else p
//! waits until t − min t ≤ s_L. Algorithm 2, the controller: of the r ≤ s_U − s_L next pushes of p and of the
//! next pushes of the slowest worker, both extrapolated with their last intervals, it picks the pair closest
//! in time and returns its r. Ties go to the smallest r.
//!
//! As printed, the lead is not bounded by s_U: a worker whose extra iterations are used up is granted new
//! ones. The strict reading (default) caps r so that the lead at a push is at most s_U + 1, and counts the
//! granted iteration; the literal one reproduces the paper's Table I.

use serde::{Deserialize, Serialize};

use super::{Aggregation, Clock, Clocks, Context, EndRule, Gate, SuperstepRules, SyncPolicy, Why};
use crate::{ids::Incarnation, spec::DsspReading};

/// Has no state of its own: clocks and allowances are the workers'.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dssp {
    lower: u64,
    upper: u64,
    reading: DsspReading,
}

/// What a push was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Near enough to the slowest.
    Near,
    /// One of the extra iterations is used up.
    Extra,
    /// The controller granted this many extra iterations.
    Granted(u64),
    /// It waits; the controller was asked if there is a value, which is then 0.
    Wait(Option<u64>),
}

impl Dssp {
    /// Thresholds `lower` <= `upper`.
    pub fn new(lower: u32, upper: u32, reading: DsspReading) -> Self {
        Self { lower: lower.into(), upper: upper.max(lower).into(), reading }
    }

    /// Counts a push of `worker` and decides about its next iteration.
    pub fn on_push(&self, worker: Incarnation, at_us: u64, clocks: &mut Clocks) -> Verdict {
        clocks.push(worker, at_us);
        let Some(clock) = clocks.get(worker).cloned() else { return Verdict::Wait(None) };
        let lead = clocks.lead(worker);
        let (verdict, extra) = if clock.extra > 0 {
            (Verdict::Extra, clock.extra - 1)
        } else if lead <= self.lower {
            (Verdict::Near, 0)
        } else if clocks.fastest() == Some(clock.pushes) {
            match self.controller(worker, clocks) {
                0 => (Verdict::Wait(Some(0)), 0),
                granted => (Verdict::Granted(granted), self.left_of(granted)),
            }
        } else {
            (Verdict::Wait(None), 0)
        };
        clocks.set_allowance(worker, extra, matches!(verdict, Verdict::Wait(_)));
        verdict
    }

    fn left_of(&self, granted: u64) -> u64 {
        match self.reading {
            DsspReading::Strict => granted - 1,
            DsspReading::Literal => granted,
        }
    }

    /// Extra iterations for `worker`, whose last push has been counted. Cost O(s_U − s_L).
    pub fn controller(&self, worker: Incarnation, clocks: &Clocks) -> u64 {
        let range = self.upper - self.lower;
        let most = match self.reading {
            DsspReading::Strict => range.min((self.upper + 1).saturating_sub(clocks.lead(worker))),
            DsspReading::Literal => range,
        };
        let Some((slowest, _)) = clocks.slowest().filter(|(slowest, _)| *slowest != worker) else { return 0 };
        let pace = |w| {
            let clock: &Clock = clocks.get(w)?;
            Some((clock.last_push_us?, clock.interval_us()?))
        };
        let (Some(own), Some(other)) = (pace(worker), pace(slowest)) else { return 0 };
        closest(own, (other.0.saturating_add(other.1), other.1), most, range)
    }

    /// Whether `worker` may start its next iteration.
    pub fn may_go(&self, worker: Incarnation, clocks: &Clocks) -> bool {
        clocks.get(worker).is_some_and(|c| !c.held) || clocks.lead(worker) <= self.lower
    }
}

/// The r in `0..=most` whose point `own.0 + r * own.1` comes closest to one of the points `other.0 + k *
/// other.1` for k in `0..=range`; the smallest such r.
fn closest(own: (u64, u64), other: (u64, u64), most: u64, range: u64) -> u64 {
    let point = |(first, interval): (u64, u64), i: u64| first.saturating_add(interval.saturating_mul(i));
    let gap = |r: u64| {
        let at = point(own, r);
        let before = at.saturating_sub(other.0).checked_div(other.1).unwrap_or(0).min(range);
        at.abs_diff(point(other, before)).min(at.abs_diff(point(other, (before + 1).min(range))))
    };
    (0..=most).min_by_key(|&r| gap(r)).unwrap_or(0)
}

impl SyncPolicy for Dssp {
    fn open(&mut self, _: &Context<'_>) -> SuperstepRules {
        let why = Why::rule(format!("{} to {} iterations ahead of the slowest", self.lower, self.upper));
        SuperstepRules::new(EndRule::Free, Aggregation::PerPush, why)
    }

    fn pushed(&mut self, worker: Incarnation, at_us: u64, clocks: &mut Clocks) {
        self.on_push(worker, at_us, clocks);
    }

    fn gate(&self, worker: Incarnation, clocks: &Clocks) -> Gate {
        let near = clocks.lowest().unwrap_or(0) + self.lower + 1;
        let allowed = clocks.get(worker).filter(|c| !c.held).map_or(0, |c| c.pushes + 1 + c.extra);
        Gate { until: Some(near.max(allowed)), behind: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_stops_where_the_two_meet() {
        // own:   100 110 120 130 140      other: 131 162 193: r = 3 ends 1 before the other's next push.
        assert_eq!(closest((100, 10), (131, 31), 4, 4), 3);
        // r = 1 and r = 3 are equally far from a push of the other: the smaller wins.
        assert_eq!(closest((0, 10), (12, 16), 4, 4), 1);
        // The other is late: go on as long as allowed.
        assert_eq!(closest((0, 10), (500, 50), 4, 4), 4);
        // The other's next push should have come already: stop.
        assert_eq!(closest((100, 10), (90, 1000), 4, 4), 0);
        assert_eq!(closest((100, 0), (90, 0), 4, 4), 0);
    }

    /// Two workers, the first three times as fast; the highest lead at a push.
    fn highest_lead(policy: &Dssp, rounds: u64) -> u64 {
        let (fast, slow) = (Incarnation(1), Incarnation(2));
        let mut clocks = Clocks::default();
        clocks.join(fast, None);
        clocks.join(slow, None);
        let mut highest = 0;
        for at in 1..=rounds {
            if policy.may_go(fast, &clocks) {
                policy.on_push(fast, at * 10, &mut clocks);
                highest = highest.max(clocks.lead(fast));
            }
            if at % 3 == 0 {
                policy.on_push(slow, at * 10 + 1, &mut clocks);
            }
        }
        highest
    }

    #[test]
    fn only_the_strict_reading_keeps_the_upper_threshold() {
        assert!(highest_lead(&Dssp::new(3, 15, DsspReading::Strict), 2000) <= 16);
        assert!(highest_lead(&Dssp::new(3, 15, DsspReading::Literal), 2000) > 16);
    }

    #[test]
    fn without_two_pushes_of_both_nothing_is_granted() {
        let (fast, slow) = (Incarnation(1), Incarnation(2));
        let mut clocks = Clocks::default();
        clocks.join(fast, None);
        clocks.join(slow, None);
        let policy = Dssp::new(0, 8, DsspReading::Strict);
        assert_eq!(policy.on_push(fast, 10, &mut clocks), Verdict::Wait(Some(0)));
        assert!(!policy.may_go(fast, &clocks));
        assert_eq!(policy.on_push(slow, 30, &mut clocks), Verdict::Near);
        assert!(policy.may_go(fast, &clocks));
    }
}
