//! A shard's range as it is cut into chunks: both ends of a push must agree about it.

use syncline_scheduler::spec::ElementRange;

use super::Codec;
use crate::shard::CHUNK_ELEMENTS;

/// Lengths of all chunks of one shard's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedRange {
    elements: u64,
    /// Those that the optimizer moves; buffers lie behind them.
    trained: u64,
}

impl ChunkedRange {
    /// `trained`: how many elements of the whole job the optimizer moves.
    pub fn new(range: ElementRange, trained: u64) -> Self {
        Self { elements: range.len(), trained: trained.clamp(range.start, range.end) - range.start }
    }

    /// Number of chunks.
    pub fn count(self) -> u32 {
        self.elements.div_ceil(CHUNK_ELEMENTS as u64) as u32
    }

    /// How many elements of chunk `index` the optimizer moves, and how many are buffers; none of either
    /// behind the last one.
    pub fn chunk(self, index: u32) -> (usize, usize) {
        let (trained, all) = (in_chunk(self.trained, index), in_chunk(self.elements, index));
        (trained, all - trained)
    }

    /// Bytes of all chunks from `first` on.
    pub fn bytes_from(self, codec: Codec, first: u32) -> u64 {
        let bytes = |index| {
            let (trained, buffers) = self.chunk(index);
            codec.chunk_bytes(trained, buffers) as u64
        };
        (first..self.count()).map(bytes).sum()
    }
}

/// How many of the first `elements` lie in chunk `index`.
fn in_chunk(elements: u64, index: u32) -> usize {
    let before = u64::from(index) * CHUNK_ELEMENTS as u64;
    elements.saturating_sub(before).min(CHUNK_ELEMENTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_range_in_which_buffers_begin() {
        let full = CHUNK_ELEMENTS as u64;
        let range = ElementRange { start: 100, end: 100 + 2 * full + 7 };
        let cut = ChunkedRange::new(range, 100 + full + 3);
        assert_eq!(cut.count(), 3);
        let chunks = [(CHUNK_ELEMENTS, 0), (3, CHUNK_ELEMENTS - 3), (0, 7), (0, 0)];
        assert_eq!([0, 1, 2, 3].map(|index| cut.chunk(index)), chunks);
        assert_eq!(cut.bytes_from(Codec::Plain, 0), range.len() * 4);
        assert_eq!(cut.bytes_from(Codec::Fp16, 1), 3 * 2 + (full - 3 + 7) * 4);
        assert_eq!(cut.bytes_from(Codec::Int8, u32::MAX), 0);
        assert_eq!(ChunkedRange::new(range, 50).chunk(0), (0, CHUNK_ELEMENTS), "all of it buffers");
        assert_eq!(ChunkedRange::new(range, u64::MAX).chunk(2), (7, 0), "none of it");
    }
}
