//! How named parameters lie in one flat array of f32, and which part of it each shard holds.

use serde::{Deserialize, Serialize};

/// Most parameters a model may have.
pub const MAX_PARAMETERS: usize = 100_000;
/// Most elements of all parameters together (256 GiB of f32).
pub const MAX_ELEMENTS: u64 = 1 << 36;

/// One named tensor of trained parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    pub shape: Vec<u64>,
}

impl Parameter {
    /// Number of f32 in it; `None` if the shape overflows.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }
}

/// A half-open range of elements of the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementRange {
    pub start: u64,
    pub end: u64,
}

impl ElementRange {
    /// Number of elements.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// The part of a flat array of `elements` that shard `index` of `count` holds: contiguous, balanced, cut at
    /// cache lines (16 f32).
    pub fn of_shard(elements: u64, index: u32, count: u32) -> Self {
        const LINE: u64 = 16;
        let lines = elements.div_ceil(LINE);
        let cut = |i: u32| (lines * u64::from(i) / u64::from(count.max(1)) * LINE).min(elements);
        Self { start: cut(index), end: cut(index + 1) }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The parameters in their flat order. Everybody who holds the job's spec computes the same offsets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(pub Vec<Parameter>);

impl Layout {
    /// Elements of all parameters; `None` if a shape overflows or a bound is exceeded.
    pub fn elements(&self) -> Option<u64> {
        if self.0.len() > MAX_PARAMETERS {
            return None;
        }
        let total = self.0.iter().try_fold(0u64, |n, p| n.checked_add(p.elements()?))?;
        (total <= MAX_ELEMENTS).then_some(total)
    }

    /// Where each parameter lies, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (&Parameter, ElementRange)> {
        self.0.iter().scan(0, |at, p| {
            let start = *at;
            *at += p.elements().unwrap_or(0);
            Some((p, ElementRange { start, end: *at }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_everything_once_and_differ_by_a_line() {
        for elements in [1, 15, 16, 17, 4810, 1_000_003] {
            for count in [1, 2, 3, 7] {
                let parts: Vec<_> = (0..count).map(|i| ElementRange::of_shard(elements, i, count)).collect();
                assert_eq!(parts[0].start, 0);
                assert_eq!(parts.last().unwrap().end, elements);
                assert!(parts.windows(2).all(|w| w[0].end == w[1].start && w[0].start <= w[0].end));
                let (min, max) =
                    parts.iter().fold((u64::MAX, 0), |(a, b), r| (a.min(r.len()), b.max(r.len())));
                assert!(max - min <= 32, "{elements} over {count}: {min}..{max}");
            }
        }
    }

    #[test]
    fn overflowing_shapes_have_no_size() {
        let huge = Parameter { name: "w".into(), shape: vec![u64::MAX, 2] };
        assert_eq!(huge.elements(), None);
        assert_eq!(Layout(vec![huge]).elements(), None);
        let over = Parameter { name: "w".into(), shape: vec![MAX_ELEMENTS + 1] };
        assert_eq!(Layout(vec![over]).elements(), None);
    }
}
