//! Asynchronous parallel: no barriers, every push is an update.

use serde::{Deserialize, Serialize};

use super::{Aggregation, Context, EndRule, SuperstepRules, SyncPolicy, Why};

/// Has no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asp;

impl SyncPolicy for Asp {
    fn open(&mut self, _: &Context<'_>) -> SuperstepRules {
        SuperstepRules::new(EndRule::Free, Aggregation::PerPush, Why::rule("nobody waits for anybody"))
    }
}
