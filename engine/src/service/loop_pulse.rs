//! Whether the loop that decides still moves, as seen by the thread that renews the lease.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The loop's signs of life; clones share them.
#[derive(Clone, Default)]
pub(super) struct LoopPulse(Arc<Pulse>);

#[derive(Default)]
struct Pulse {
    beats: AtomicU64,
    /// It has something in hand: one that has nothing to do need not move.
    busy: AtomicBool,
    /// What it was loaded with, and what it made of that, is in Redis.
    turned: AtomicBool,
}

impl LoopPulse {
    /// The loop has begun or tried something.
    pub(super) fn beat(&self) {
        self.0.beats.fetch_add(1, Ordering::Relaxed);
        self.0.busy.store(true, Ordering::Relaxed);
    }

    /// The loop has committed a turn.
    pub(super) fn turned(&self) {
        self.0.turned.store(true, Ordering::Relaxed);
    }

    /// Whether it has committed one.
    pub(super) fn has_turned(&self) -> bool {
        self.0.turned.load(Ordering::Relaxed)
    }

    /// The loop waits for something to do.
    pub(super) fn rest(&self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// For how long the loop has been busy without a sign of life. Counts time in which the one who looks was
/// awake, so that a process which was stopped for a night has not hung.
#[derive(Default)]
pub(super) struct StallCounter {
    seen: u64,
    still: Duration,
}

impl StallCounter {
    /// Looks after `awake` has passed since the last time.
    pub(super) fn look(&mut self, pulse: &LoopPulse, awake: Duration) -> Duration {
        let beats = pulse.0.beats.load(Ordering::Relaxed);
        let moved = beats != self.seen || !pulse.0.busy.load(Ordering::Relaxed);
        self.still = if moved { Duration::ZERO } else { self.still + awake };
        self.seen = beats;
        self.still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_still_only_while_it_is_busy_and_gives_no_sign_of_life() {
        let (pulse, mut counter) = (LoopPulse::default(), StallCounter::default());
        let mut look = || counter.look(&pulse, Duration::from_secs(1)).as_secs();
        assert_eq!((look(), look()), (0, 0), "it waits");
        pulse.beat();
        assert_eq!((look(), look(), look()), (0, 1, 2));
        pulse.beat();
        assert_eq!((look(), look()), (0, 1), "a commit that is tried again");
        pulse.rest();
        assert_eq!((look(), look()), (0, 0));
    }
}
