//! Refuses engines of past epochs.

use std::sync::atomic::{AtomicU64, Ordering};

use syncline_rpc::ShardFault;
use syncline_scheduler::ids::EngineEpoch;

/// Highest engine epoch that this process has seen.
#[derive(Debug, Default)]
pub struct EpochFence(AtomicU64);

impl EpochFence {
    /// Takes note of `given` and refuses it if a higher one was seen.
    pub fn check(&self, given: EngineEpoch) -> Result<(), ShardFault> {
        let highest = self.0.fetch_max(given.0, Ordering::AcqRel);
        if given.0 < highest {
            return Err(ShardFault::Fenced { given, highest: EngineEpoch(highest) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_epoch_is_refused_for_ever() {
        let fence = EpochFence::default();
        assert!(fence.check(EngineEpoch(3)).is_ok());
        assert!(fence.check(EngineEpoch(3)).is_ok());
        assert_eq!(
            fence.check(EngineEpoch(2)),
            Err(ShardFault::Fenced { given: EngineEpoch(2), highest: EngineEpoch(3) })
        );
        assert_eq!(fence.0.into_inner(), 3);
    }
}
