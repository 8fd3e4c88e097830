//! The clock of the cluster, by which moments of jobs are told.

use syncline_rpc::status::{EngineStatus, now_ms};

/// How far the engine's clock is ahead of ours, as of the moment at which it was asked. Machines of people
/// are often seconds off, and the speed of a job would seem to be that of long ago.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineClock {
    ahead_ms: i64,
}

impl EngineClock {
    /// By what an engine has just said; an earlier release does not tell its time, and is taken to have ours.
    pub(crate) fn of(about: &EngineStatus) -> Self {
        Self::since(about.now_ms, now_ms())
    }

    fn since(theirs_ms: Option<u64>, ours_ms: u64) -> Self {
        Self { ahead_ms: theirs_ms.map_or(0, |theirs_ms| theirs_ms.wrapping_sub(ours_ms).cast_signed()) }
    }

    /// Now, on that clock.
    pub(crate) fn now_ms(self) -> u64 {
        self.at(now_ms())
    }

    fn at(self, ours_ms: u64) -> u64 {
        ours_ms.saturating_add_signed(self.ahead_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_engine_goes_on_with_ours() {
        for (theirs_ms, ours_ms, later_ms, want_ms) in
            [(Some(1_000), 13_000, 14_000, 2_000), (Some(13_000), 1_000, 2_000, 14_000), (None, 5, 7, 7)]
        {
            assert_eq!(EngineClock::since(theirs_ms, ours_ms).at(later_ms), want_ms);
        }
    }
}
