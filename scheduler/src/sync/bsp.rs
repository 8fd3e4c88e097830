//! Bulk synchronous parallel (Valiant, CACM 1990): a barrier after every iteration of all workers, one update
//! per round from the weighted mean of its gradients. Every iteration lasts as long as the slowest worker
//! needs.

use serde::{Deserialize, Serialize};

use super::{Aggregation, Context, EndRule, PlanningBasis, SuperstepRules, SyncPolicy, Why};

/// Has no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bsp;

impl SyncPolicy for Bsp {
    fn open(&mut self, _: &Context<'_>) -> SuperstepRules {
        SuperstepRules::new(
            EndRule::Quota(1),
            Aggregation::PerBarrier,
            Why::rule("one iteration of everybody"),
        )
    }

    fn planning_basis(&self) -> PlanningBasis {
        PlanningBasis::Nothing
    }
}
