//! Stale synchronous parallel (Ho et al., NIPS 2013): nobody runs further ahead of the slowest than allowed.
//!
//! With c the number of iterations a worker has finished, it may start iteration c + 1 only while
//! c − min c ≤ s. At a push the lead over the slowest is therefore at most s + 1. Every push is an update.
//!
//! The wait happens at the parameter server, as part of the pull: iteration k is granted as soon as everybody
//! has been granted iteration k − 1 − s, and its pull waits until everybody has pushed it.

use serde::{Deserialize, Serialize};

use super::{Aggregation, Clocks, Context, EndRule, Gate, SuperstepRules, SyncPolicy, Why};

/// Has no state but its bound s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssp {
    staleness: u64,
}

impl Ssp {
    /// Allows a lead of `staleness` at the start of an iteration.
    pub fn new(staleness: u32) -> Self {
        Self { staleness: staleness.into() }
    }
}

impl SyncPolicy for Ssp {
    fn open(&mut self, _: &Context<'_>) -> SuperstepRules {
        let why = Why::rule(format!("at most {} iterations ahead of the slowest", self.staleness));
        SuperstepRules::new(EndRule::Free, Aggregation::PerPush, why)
    }

    fn gate(&self, _: crate::ids::Incarnation, clocks: &Clocks) -> Gate {
        Gate {
            until: clocks.lowest().map(|lowest| lowest + self.staleness + 1),
            behind: Some(self.staleness),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;

    #[test]
    fn the_lead_at_a_push_is_at_most_one_more_than_the_bound() {
        let mut clocks = Clocks::default();
        let (fast, slow) = (Incarnation(1), Incarnation(2));
        clocks.join(fast, None);
        clocks.join(slow, None);
        let policy = Ssp::new(3);
        for at in 0.. {
            let until = policy.gate(fast, &clocks).until.unwrap();
            if clocks.get(fast).unwrap().pushes >= until {
                break;
            }
            clocks.push(fast, at);
        }
        assert_eq!(clocks.lead(fast), 4);
        clocks.push(slow, 99);
        assert_eq!(policy.gate(fast, &clocks).until, Some(5));
    }
}
