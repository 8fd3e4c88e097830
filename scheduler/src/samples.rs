//! Which samples an iteration trains on: one order per epoch, a seeded permutation or that of the files,
//! handed out in ranges.
//!
//! A range that was handed out and not applied comes back and is handed out again, so each sample of each
//! epoch is counted once, whatever workers come, go or change their batch size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A contiguous part of one epoch's order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleRange {
    /// Pass over the training set, from 0.
    pub epoch: u32,
    /// Place of its first sample in that order, from 0.
    pub start: u64,
    /// Number of samples; it never reaches beyond the epoch.
    pub len: u32,
}

impl SampleRange {
    /// Takes its first `most` samples out of it, or all where it has fewer: it is empty then.
    pub(crate) fn split_front(&mut self, most: u32) -> Self {
        let taken = Self { len: self.len.min(most), ..*self };
        self.start += u64::from(taken.len);
        self.len -= taken.len;
        taken
    }
}

/// How far a cursor has come, whatever the number of epochs: everything before it is handed out, but for what
/// came back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePosition {
    /// Pass from which fresh samples come, from 0; the number of epochs once all are handed out.
    pub epoch: u32,
    /// Place in that pass's order of the next fresh sample, from 0.
    pub next: u64,
    /// Ranges of lost iterations, in order.
    pub returned: Vec<SampleRange>,
}

impl SamplePosition {
    /// What is wrong with it for epochs of `samples` samples, in words.
    pub fn fault(&self, samples: u64) -> Option<&'static str> {
        let ends = |range: &SampleRange| (range.epoch, range.start.saturating_add(u64::from(range.len)));
        let is_handed_out = |range: &SampleRange| {
            let begun = if range.epoch < self.epoch { samples } else { self.next };
            range.len > 0 && range.epoch <= self.epoch && ends(range).1 <= begun
        };
        if self.next >= samples.max(1) {
            return Some("its next sample lies beyond the epoch");
        }
        if !self.returned.iter().all(is_handed_out) {
            return Some("a range that came back was never handed out");
        }
        let apart = self.returned.windows(2).all(|pair| ends(&pair[0]) <= (pair[1].epoch, pair[1].start));
        (!apart).then_some("ranges that came back overlap")
    }

    /// Samples handed out and not taken back, of epochs of `samples`.
    pub fn handed_out(&self, samples: u64) -> u64 {
        let begun = samples.saturating_mul(u64::from(self.epoch)).saturating_add(self.next);
        begun.saturating_sub(self.returned.iter().map(|range| u64::from(range.len)).sum())
    }

    /// Samples handed out of each epoch of which some are, and some are not, and how many epochs are handed
    /// out whole.
    pub fn handed_out_by_epoch(&self, samples: u64) -> (BTreeMap<u32, u64>, u32) {
        let mut partial = BTreeMap::from([(self.epoch, self.next)]);
        for range in &self.returned {
            *partial.entry(range.epoch).or_insert(samples) -= u64::from(range.len);
        }
        let whole = self.epoch - partial.range(..self.epoch).count() as u32;
        partial.retain(|_, handed_out| *handed_out > 0);
        (partial, whole)
    }
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
    /// Nothing more is handed out, whatever is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

impl SampleCursor {
    /// At the first sample of the first of `epochs` passes over `samples` samples, those that an epoch trains
    /// on.
    pub fn new(samples: u64, epochs: u32) -> Self {
        Self { samples, epochs, epoch: 0, next: 0, returned: Vec::new(), stopped: false }
    }

    /// At a position that has no [fault](SamplePosition::fault) for as many samples.
    pub fn at(samples: u64, epochs: u32, position: SamplePosition) -> Self {
        let SamplePosition { epoch, next, returned } = position;
        Self { samples, epochs, epoch, next, returned, stopped: false }
    }

    /// How far it has come.
    pub fn position(&self) -> SamplePosition {
        SamplePosition { epoch: self.epoch, next: self.next, returned: self.returned.clone() }
    }

    /// Hands out nothing more: training ends here.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether [`SampleCursor::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The next range of at most `batch` samples; returned ranges first, never across an epoch. None that is
    /// fresh from epoch `until` on.
    pub fn take(&mut self, batch: u32, until: u32) -> Option<SampleRange> {
        if self.stopped {
            return None;
        }
        if let Some(range) = self.returned.first_mut() {
            let taken = range.split_front(batch);
            if range.len == 0 {
                self.returned.remove(0);
            }
            return Some(taken);
        }
        if self.epoch >= self.epochs.min(until) || self.samples == 0 {
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
    pub fn remaining(&self, until: u32) -> u64 {
        if self.stopped { 0 } else { self.left(until) }
    }

    /// Samples in front of epoch `until` that are not handed out, or were taken back.
    fn left(&self, until: u32) -> u64 {
        let epochs = self.epochs.min(until).saturating_sub(self.epoch);
        let fresh = (self.samples * u64::from(epochs)).saturating_sub(self.next);
        fresh + self.returned.iter().map(|r| u64::from(r.len)).sum::<u64>()
    }

    /// Samples handed out and not taken back.
    pub fn handed_out(&self) -> u64 {
        self.samples * u64::from(self.epochs) - self.left(u32::MAX)
    }

    /// Takes back a range that no shard has applied. Those that lie side by side become one: batches are cut
    /// from it anew.
    pub fn put_back(&mut self, range: SampleRange) {
        let at = self.returned.partition_point(|r| *r < range);
        self.returned.insert(at, range);
        self.join_with_next(at);
        self.join_with_next(at.saturating_sub(1));
    }

    fn join_with_next(&mut self, at: usize) {
        let Some([first, next]) = self.returned[at..].first_chunk_mut() else { return };
        let is_adjacent = (first.epoch, first.start + u64::from(first.len)) == (next.epoch, next.start);
        if let Some(len) = first.len.checked_add(next.len).filter(|_| is_adjacent) {
            first.len = len;
            self.returned.remove(at + 1);
        }
    }

    /// Whether everything has been handed out and nothing has come back, or nothing more is to be.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted_until(u32::MAX)
    }

    /// Whether [`SampleCursor::take`] gives nothing.
    pub fn is_exhausted_until(&self, until: u32) -> bool {
        let is_over = self.epoch >= self.epochs.min(until) || self.samples == 0;
        self.stopped || (self.returned.is_empty() && is_over)
    }
}

/// The order in which `epoch` visits `samples` samples: the same for everybody who knows the seed.
///
/// Fisher-Yates over SplitMix64 (Steele, Lea and Flood 2014). Cost O(samples).
pub fn permutation(seed: u64, epoch: u32, samples: u32) -> Vec<u32> {
    let mut state = seed ^ u64::from(epoch).wrapping_mul(0xA076_1D64_78BD_642F);
    let mut order: Vec<u32> = (0..samples).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw_below(&mut state, i as u64 + 1) as usize);
    }
    order
}

/// A number below `bound`, by the next step of SplitMix64.
pub fn draw_below(state: &mut u64, bound: u64) -> u64 {
    ((u128::from(splitmix64(state)) * u128::from(bound)) >> 64) as u64
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
            std::iter::from_fn(|| cursor.take(4, u32::MAX)).map(|r| (r.epoch, r.start, r.len)).collect();
        assert_eq!(taken, [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, 4), (1, 4, 4), (1, 8, 2)]);
        assert!(cursor.is_exhausted());
    }

    #[test]
    fn a_cursor_that_was_stopped_gives_nothing_and_knows_what_it_has_given() {
        let mut cursor = SampleCursor::new(10, 3);
        let taken = cursor.take(4, u32::MAX).unwrap();
        cursor.take(4, u32::MAX).unwrap();
        cursor.put_back(taken);
        cursor.stop();
        assert_eq!((cursor.take(4, u32::MAX), cursor.remaining(u32::MAX), cursor.handed_out()), (None, 0, 4));
        assert!(cursor.is_exhausted() && cursor.is_exhausted_until(1));
        let read: SampleCursor = serde_json::from_str(&serde_json::to_string(&cursor).unwrap()).unwrap();
        assert!(read == cursor && read.is_stopped());
    }

    #[test]
    fn up_to_an_epoch_nothing_of_it_is_given_but_what_came_back_is() {
        let mut cursor = SampleCursor::new(10, 3);
        let taken = cursor.take(10, 1).unwrap();
        assert_eq!((cursor.take(4, 1), cursor.remaining(1), cursor.handed_out()), (None, 0, 10));
        assert!(cursor.is_exhausted_until(1) && !cursor.is_exhausted_until(2) && !cursor.is_exhausted());
        cursor.put_back(taken);
        assert_eq!((cursor.remaining(1), cursor.remaining(2)), (10, 20));
        assert_eq!(cursor.take(10, 1), Some(taken));
        assert_eq!(cursor.take(4, 2), Some(SampleRange { epoch: 1, start: 0, len: 4 }));
        assert_eq!((cursor.remaining(0), cursor.remaining(2)), (0, 6), "one that lies behind");
    }

    #[test]
    fn a_returned_range_comes_first_and_may_be_cut() {
        let mut cursor = SampleCursor::new(10, 1);
        let lost = cursor.take(4, u32::MAX).unwrap();
        cursor.put_back(lost);
        assert_eq!(cursor.take(3, u32::MAX), Some(SampleRange { epoch: 0, start: 0, len: 3 }));
        assert_eq!(cursor.take(3, u32::MAX), Some(SampleRange { epoch: 0, start: 3, len: 1 }));
        assert_eq!(cursor.take(3, u32::MAX), Some(SampleRange { epoch: 0, start: 4, len: 3 }));
    }

    #[test]
    fn ranges_that_come_back_side_by_side_become_one_table() {
        let range = |&(epoch, start, len): &(u32, u64, u32)| SampleRange { epoch, start, len };
        type Ranges<'a> = &'a [(u32, u64, u32)];
        #[rustfmt::skip]
        let cases: &[(&str, Ranges<'_>, Ranges<'_>)] = &[
            ("behind",             &[(0, 0, 4), (0, 4, 4)],                 &[(0, 0, 8)]),
            ("in front",           &[(0, 4, 4), (0, 0, 4)],                 &[(0, 0, 8)]),
            ("between two",        &[(0, 0, 4), (0, 8, 4), (0, 4, 4)],      &[(0, 0, 12)]),
            ("apart",              &[(0, 0, 4), (0, 5, 4)],                 &[(0, 0, 4), (0, 5, 4)]),
            ("of two epochs",      &[(0, 8, 4), (1, 12, 4)],                &[(0, 8, 4), (1, 12, 4)]),
            ("longer than a range may be", &[(0, 0, u32::MAX), (0, u32::MAX.into(), 1)],
                                           &[(0, 0, u32::MAX), (0, u32::MAX.into(), 1)]),
        ];
        for (name, back, want) in cases {
            let mut cursor = SampleCursor::new(1 << 40, 2);
            back.iter().map(range).for_each(|range| cursor.put_back(range));
            assert_eq!(cursor.position().returned, want.iter().map(range).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn a_position_that_no_cursor_can_have_is_refused_with_the_reason_table() {
        let returned = |ranges: &[(u32, u64, u32)]| {
            ranges.iter().map(|&(epoch, start, len)| SampleRange { epoch, start, len }).collect()
        };
        #[rustfmt::skip]
        let cases = [
            (2, 4,  returned(&[(0, 6, 4), (1, 0, 4), (2, 0, 4)]), None),
            (0, 0,  returned(&[]),                                None),
            (0, 10, returned(&[]),                                Some("beyond the epoch")),
            (1, 4,  returned(&[(1, 2, 3)]),                       Some("never handed out")),
            (1, 4,  returned(&[(2, 0, 1)]),                       Some("never handed out")),
            (1, 4,  returned(&[(0, 8, 3)]),                       Some("never handed out")),
            (1, 4,  returned(&[(0, u64::MAX, 3)]),                Some("never handed out")),
            (1, 4,  returned(&[(0, 0, 0)]),                       Some("never handed out")),
            (1, 4,  returned(&[(0, 0, 4), (0, 3, 1)]),            Some("overlap")),
            (1, 4,  returned(&[(1, 0, 1), (0, 3, 1)]),            Some("overlap")),
        ];
        for (epoch, next, returned, expected) in cases {
            let position = SamplePosition { epoch, next, returned };
            let fault = position.fault(10);
            assert_eq!(fault.is_some(), expected.is_some(), "{position:?}: {fault:?}");
            assert!(
                fault.unwrap_or_default().contains(expected.unwrap_or_default()),
                "{position:?}: {fault:?}"
            );
        }
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
            let apply = |seen: &mut [u32], r: SampleRange| {
                for i in 0..u64::from(r.len) {
                    seen[(u64::from(r.epoch) * samples + r.start + i) as usize] += 1;
                }
            };
            for (batch, lost) in moves {
                match cursor.take(batch, u32::MAX) {
                    Some(range) if lost => cursor.put_back(range),
                    Some(range) => apply(&mut seen, range),
                    None => break,
                }
            }
            // Another training goes on where this one was, with as many epochs as it likes.
            let position = cursor.position();
            prop_assert_eq!(position.fault(samples), None);
            prop_assert_eq!(position.handed_out(samples), cursor.handed_out());
            let (partial, whole) = position.handed_out_by_epoch(samples);
            for (epoch, seen) in (0..).zip(seen.chunks(samples as usize)) {
                let counted = seen.iter().map(|&n| u64::from(n)).sum::<u64>();
                let is_whole = epoch < position.epoch && !partial.contains_key(&epoch) && counted > 0;
                prop_assert_eq!(counted, partial.get(&epoch).copied().unwrap_or(if is_whole { samples } else { 0 }));
            }
            let complete = seen.chunks(samples as usize).filter(|seen| seen.iter().all(|&n| n == 1)).count();
            prop_assert_eq!(whole as usize, complete);
            let mut cursor = SampleCursor::at(samples, epochs, position);
            while let Some(range) = cursor.take(7, u32::MAX) {
                apply(&mut seen, range);
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }
    }
}
