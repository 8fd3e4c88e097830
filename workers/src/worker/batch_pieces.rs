//! How a batch is cut: into parts that are computed side by side, and each part into pieces, one after the
//! other.
//!
//! In: the samples of a batch, how many parts there can be, and how many samples may be computed on at once,
//! if there is a limit. Out: ranges of samples in order, without gaps. No more samples than the limit are
//! computed on at any time, all parts together: with fewer than parts, some parts are left out. Pieces differ
//! by one sample at most. Pure.

use std::ops::Range;

/// A batch as it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchPieces {
    rows: usize,
    /// At least 1; each of them has a sample, unless the batch has none.
    pub parts: usize,
    /// Of each part, at least 1. Of fewer samples than pieces some are empty.
    per_part: usize,
}

impl BatchPieces {
    /// Cuts a batch of `rows` samples for up to `replicas` parts and `at_once` samples at a time. A batch
    /// with fewer samples than parts stays in one.
    pub(super) fn of(rows: usize, replicas: usize, at_once: Option<usize>) -> Self {
        let at_once = at_once.unwrap_or(usize::MAX).max(1);
        let parts = replicas.min(at_once).max(1);
        let parts = if rows < parts { 1 } else { parts };
        let per_part = rows.div_ceil(parts).div_ceil(at_once / parts).max(1);
        Self { rows, parts, per_part }
    }

    /// Whether it is computed at once.
    pub(super) fn is_whole(self) -> bool {
        self.parts == 1 && self.per_part == 1
    }

    /// The pieces of one part, of which none is empty but the only one of an empty batch.
    pub(super) fn part(self, part: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let pieces = self.parts * self.per_part;
        let bound = move |piece: usize| (piece as u128 * self.rows as u128 / pieces as u128) as usize;
        let all = (part * self.per_part..(part + 1) * self.per_part)
            .map(move |piece| bound(piece)..bound(piece + 1));
        all.filter(move |rows| !rows.is_empty() || self.rows == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_pieces_table() {
        const ALL: Option<usize> = None;
        type Batch = (usize, usize, Option<usize>);
        #[rustfmt::skip]
        let cases: &[(&str, Batch, &[&[usize]])] = &[
            // name, (samples, replicas, at once), samples of the pieces of each part
            ("whole",                      (8, 1, ALL),     &[&[8]]),
            ("side by side",               (8, 2, ALL),     &[&[4], &[4]]),
            ("no limit that is reached",   (8, 1, Some(8)), &[&[8]]),
            ("one after the other",        (8, 1, Some(2)), &[&[2, 2, 2, 2]]),
            ("as equal as they can be",    (9, 1, Some(4)), &[&[3, 3, 3]]),
            ("one sample too many",        (5, 1, Some(4)), &[&[2, 3]]),
            ("both",                       (8, 2, Some(4)), &[&[2, 2], &[2, 2]]),
            ("both, not divisible",        (9, 2, Some(4)), &[&[1, 2, 1], &[2, 1, 2]]),
            ("no more at once than that",  (8, 4, Some(2)), &[&[1, 1, 1, 1], &[1, 1, 1, 1]]),
            ("one sample at a time",       (3, 4, Some(1)), &[&[1, 1, 1]]),
            ("an odd limit for two",       (6, 2, Some(3)), &[&[1, 1, 1], &[1, 1, 1]]),
            ("fewer samples than pieces",  (3, 2, Some(2)), &[&[1], &[1, 1]]),
            ("fewer samples than parts",   (2, 3, Some(9)), &[&[2]]),
            ("no sample",                  (0, 2, Some(4)), &[&[0]]),
            ("a limit of nothing is one",  (2, 1, Some(0)), &[&[1, 1]]),
        ];
        for (name, (rows, replicas, at_once), want) in cases {
            let pieces = BatchPieces::of(*rows, *replicas, *at_once);
            let got: Vec<Vec<usize>> =
                (0..pieces.parts).map(|part| pieces.part(part).map(|rows| rows.len()).collect()).collect();
            assert_eq!(got, *want, "{name}");
        }
    }

    #[test]
    fn pieces_hold_every_sample_once_in_order_and_no_more_at_once_than_fit() {
        for (rows, replicas, limit) in
            (0..40).flat_map(|rows| (1..6).flat_map(move |n| (1..12).map(move |limit| (rows, n, limit))))
        {
            let case = format!("{rows} samples, {replicas} replicas, {limit} at once");
            let pieces = BatchPieces::of(rows, replicas, Some(limit));
            let of_parts: Vec<Vec<Range<usize>>> =
                (0..pieces.parts).map(|part| pieces.part(part).collect()).collect();
            let all = of_parts.concat();
            assert_eq!(
                all.iter().cloned().flatten().collect::<Vec<_>>(),
                (0..rows).collect::<Vec<_>>(),
                "{case}"
            );
            let (least, most) = (all.iter().map(Range::len).min(), all.iter().map(Range::len).max());
            assert!(most.unwrap() <= least.unwrap() + 1, "{case}: {all:?}");
            let longest = of_parts.iter().map(|part| part.iter().map(Range::len).max().unwrap());
            assert!(longest.sum::<usize>() <= limit, "{case}: {of_parts:?}");
            assert!(pieces.parts <= replicas && of_parts.iter().all(|part| !part.is_empty()), "{case}");
        }
    }
}
