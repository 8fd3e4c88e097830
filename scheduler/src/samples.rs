//! Which samples an iteration trains on: one seeded permutation per epoch, handed out in ranges.
//!
//! A range that was handed out and not applied comes back and is handed out again, so each sample of each epoch is
//! counted once, whatever workers come, go or change their batch size.

use serde::{Deserialize, Serialize};

/// A contiguous part of one epoch's permutation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleRange {
    /// Pass over the training set, from 0.
    pub epoch: u32,
    pub start: u64,
    pub len: u32,
}

/// Hands out every sample of every epoch once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCursor {
    samples: u64,
    epochs: u32,
    epoch: u32,
    next: u64,
    /// Ranges of lost iterations, oldest first.
    returned: Vec<SampleRange>,
}

impl SampleCursor {
    /// At the first sample of the first of `epochs` passes over `samples` samples, those that an epoch trains on.
    pub fn new(samples: u64, epochs: u32) -> Self {
        Self { samples, epochs, epoch: 0, next: 0, returned: Vec::new() }
    }

    /// The next range of at most `batch` samples; returned ranges first, never across an epoch.
    pub fn take(&mut self, batch: u32) -> Option<SampleRange> {
        if let Some(range) = self.returned.first_mut() {
            let len = range.len.min(batch);
            let taken = SampleRange { len, ..*range };
            range.start += u64::from(len);
            range.len -= len;
            if range.len == 0 {
                self.returned.remove(0);
            }
            return Some(taken);
        }
        if self.epoch >= self.epochs || self.samples == 0 {
            return None;
        }
        let len = (self.samples - self.next).min(u64::from(batch)) as u32;
        let taken = SampleRange { epoch: self.epoch, start: self.next, len };
        self.next += u64::from(len);
        if self.next == self.samples {
            (self.epoch, self.next) = (self.epoch + 1, 0);
        }
        Some(taken)
    }

    /// Samples that [`SampleCursor::take`] can still give.
    pub fn remaining(&self) -> u64 {
        let fresh = self.samples * u64::from(self.epochs - self.epoch.min(self.epochs)) - self.next;
        fresh + self.returned.iter().map(|r| u64::from(r.len)).sum::<u64>()
    }

    /// Samples handed out and not taken back.
    pub fn handed_out(&self) -> u64 {
        self.samples * u64::from(self.epochs) - self.remaining()
    }

    /// Takes back a range that no shard has applied.
    pub fn put_back(&mut self, range: SampleRange) {
        let at = self.returned.partition_point(|r| *r < range);
        self.returned.insert(at, range);
    }

    /// Whether everything has been handed out and nothing has come back.
    pub fn is_exhausted(&self) -> bool {
        self.returned.is_empty() && (self.epoch >= self.epochs || self.samples == 0)
    }
}

/// The order in which `epoch` visits `samples` samples: the same for everybody who knows the seed.
///
/// Fisher-Yates over SplitMix64 (Steele, Lea and Flood 2014). Cost O(samples).
pub fn permutation(seed: u64, epoch: u32, samples: u32) -> Vec<u32> {
    let mut state = seed ^ u64::from(epoch).wrapping_mul(0xA076_1D64_78BD_642F);
    let mut order: Vec<u32> = (0..samples).collect();
    for i in (1..order.len()).rev() {
        let j = ((u128::from(splitmix64(&mut state)) * (i as u128 + 1)) >> 64) as usize;
        order.swap(i, j);
    }
    order
}

/// One step of SplitMix64.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_never_cross_an_epoch() {
        let mut cursor = SampleCursor::new(10, 2);
        let taken: Vec<_> =
            std::iter::from_fn(|| cursor.take(4)).map(|r| (r.epoch, r.start, r.len)).collect();
        assert_eq!(taken, [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, 4), (1, 4, 4), (1, 8, 2)]);
        assert!(cursor.is_exhausted());
    }

    #[test]
    fn a_returned_range_comes_first_and_may_be_cut() {
        let mut cursor = SampleCursor::new(10, 1);
        let lost = cursor.take(4).unwrap();
        cursor.put_back(lost);
        assert_eq!(cursor.take(3), Some(SampleRange { epoch: 0, start: 0, len: 3 }));
        assert_eq!(cursor.take(3), Some(SampleRange { epoch: 0, start: 3, len: 1 }));
        assert_eq!(cursor.take(3), Some(SampleRange { epoch: 0, start: 4, len: 3 }));
    }

    #[test]
    fn permutations_differ_by_epoch_and_seed_and_repeat() {
        assert_eq!(permutation(1, 0, 100), permutation(1, 0, 100));
        assert_ne!(permutation(1, 0, 100), permutation(1, 1, 100));
        assert_ne!(permutation(1, 0, 100), permutation(2, 0, 100));
        let mut sorted = permutation(7, 3, 1000);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }

    proptest! {
        #[test]
        fn every_sample_of_every_epoch_is_counted_once(
            samples in 1u64..200, epochs in 1u32..4, moves in prop::collection::vec((1u32..40, any::<bool>()), 0..200)
        ) {
            let mut cursor = SampleCursor::new(samples, epochs);
            let mut seen = vec![0u32; (samples * u64::from(epochs)) as usize];
            let mut apply = |r: SampleRange| {
                for i in 0..u64::from(r.len) {
                    seen[(u64::from(r.epoch) * samples + r.start + i) as usize] += 1;
                }
            };
            for (batch, lost) in moves {
                match cursor.take(batch) {
                    Some(range) if lost => cursor.put_back(range),
                    Some(range) => apply(range),
                    None => break,
                }
            }
            while let Some(range) = cursor.take(7) {
                apply(range);
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }
    }
}
