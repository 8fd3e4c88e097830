//! The pause before a task is tried again.

use super::TaskJob;
use crate::tasks::Backoff;

impl TaskJob {
    /// Tasks whose pause is over can be given out again.
    pub(super) fn end_backoffs(&mut self, now_us: u64) {
        while let Some(&(until_us, task)) = self.postponed.first().filter(|(until, _)| *until <= now_us) {
            self.postponed.remove(&(until_us, task));
            self.leave_backoff(task);
            self.put_back(task);
        }
    }

    /// A task does not pause any more.
    pub(super) fn leave_backoff(&mut self, task: u32) {
        let Some(faults) = self.faults.get_mut(&task) else { return };
        if let Some(until_us) = faults.backoff_until_us.take() {
            self.postponed.remove(&(until_us, task));
            self.changes.faults.insert(task);
        }
    }
}

/// Deterministic jitter: the same attempt always pauses alike.
pub(super) fn seed(nonce: u32, task: u32, attempt: u16) -> u64 {
    // SplitMix64, Steele et al., 2014.
    let mut z = (u64::from(nonce) << 32 | u64::from(task)).wrapping_add(u64::from(attempt) << 24);
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Pause before the attempt that follows failure number `failures`.
pub(super) fn pause_us(backoff: Backoff, failures: u16, seed: u64) -> u64 {
    let doublings = u32::from(failures.saturating_sub(1)).min(32);
    let full_ms = (u64::from(backoff.first_ms) << doublings).min(u64::from(backoff.longest_ms));
    let full_us = full_ms * 1_000;
    full_us / 2 + seed % (full_us / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_half_of_each_is_chance() {
        let backoff = Backoff { first_ms: 100, longest_ms: 1_000 };
        for (failures, full_ms) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (600, 1_000)] {
            let pauses: Vec<u64> =
                (0..100).map(|n| pause_us(backoff, failures, seed(7, n, failures))).collect();
            assert!(pauses.iter().all(|us| (full_ms * 500..=full_ms * 1_000).contains(us)), "{pauses:?}");
            assert!(pauses.iter().any(|us| *us != pauses[0]), "they differ");
        }
        assert_eq!(pause_us(Backoff { first_ms: 0, longest_ms: 0 }, 1, 9), 0);
    }
}
