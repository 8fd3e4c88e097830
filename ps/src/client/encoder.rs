//! What one shard is sent of pushes that are compressed, and what the encoding has kept back.

use syncline_scheduler::spec::ElementRange;

use super::gather::Gather;
use crate::{
    codec::{ChunkedRange, Codec},
    optim::scale_and_add,
};

/// Encodes the pushes to one shard. What a push loses is added to the next one, from the moment on at which
/// the shard has acknowledged it: a push that is sent again is the same bytes, and one that never counted
/// leaves nothing behind.
///
/// Memory: two f32 for each element of the shard's range, and the bytes of one push.
pub(super) struct PushEncoder {
    /// Of the push that is on its way, or the last one.
    codec: Codec,
    /// Of the next one.
    next_codec: Codec,
    chunks: ChunkedRange,
    /// First element of the range in the flat array.
    start: u64,
    /// What the pushes that counted have not said yet.
    residual: Vec<f32>,
    /// Weight of those pushes in the mean of a round; `None`: each was a step of its own.
    residual_weight: Option<f32>,
    /// The same behind the push that is on its way, as far as that is encoded.
    next_residual: Vec<f32>,
    on_its_way: Option<EncodedPush>,
    /// Bytes of the push that is on its way; kept for the next one's.
    bytes: Vec<u8>,
    acknowledged: u64,
}

/// A push that the shard has not acknowledged.
#[derive(Clone, Copy)]
struct EncodedPush {
    seq: u64,
    /// Chunks that are encoded.
    chunks: u32,
    /// Elements in them.
    elements: usize,
}

/// The gradient has a number that is not finite, or becomes one with what was kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotFinite;

impl PushEncoder {
    /// `trained`: how many elements of the whole job the optimizer moves.
    pub(super) fn new(codec: Codec, range: ElementRange, trained: u64) -> Self {
        let elements = range.len() as usize;
        Self {
            codec,
            next_codec: codec,
            chunks: ChunkedRange::new(range, trained),
            start: range.start,
            residual: vec![0.0; elements],
            residual_weight: None,
            next_residual: vec![0.0; elements],
            on_its_way: None,
            bytes: Vec::new(),
            acknowledged: 0,
        }
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// Takes another codec from the next push on. What is kept back stays.
    pub(super) fn set_next_codec(&mut self, codec: Codec) {
        self.next_codec = codec;
    }

    /// Drops what is kept back: from here on pushes are in another unit.
    pub(super) fn forget_residual(&mut self) {
        self.residual.fill(0.0);
    }

    /// Whether nothing was encoded yet, so that nothing is kept back.
    pub(super) fn is_unused(&self) -> bool {
        self.acknowledged == 0 && self.on_its_way.is_none()
    }

    /// Whether it has nothing more to do: pushes go as they are, and nothing is kept back.
    pub(super) fn is_through(&self) -> bool {
        self.codec == Codec::Plain && self.next_codec == Codec::Plain && self.on_its_way.is_none()
    }

    /// Whether the shard has acknowledged this push: it must not be encoded again.
    pub(super) fn has_acknowledged(&self, seq: u64) -> bool {
        seq <= self.acknowledged
    }

    /// Begins push `seq`, or goes on with it. `weight`: that of the push in the mean of a round, above zero;
    /// `None`: it is a step of its own. Answers where chunk `first_chunk` begins in
    /// [`PushEncoder::bytes`], and where the last one ends.
    pub(super) fn begin(&mut self, seq: u64, first_chunk: u32, weight: Option<f32>) -> (u64, u64) {
        let is_new = self.on_its_way.is_none_or(|push| push.seq != seq);
        if is_new {
            self.codec = self.next_codec;
            self.carry_over(weight);
        }
        let all = self.chunks.bytes_from(self.codec, 0);
        if is_new {
            self.on_its_way = Some(EncodedPush { seq, chunks: 0, elements: 0 });
            self.bytes.clear();
            self.bytes.reserve_exact(all as usize);
        }
        (all - self.chunks.bytes_from(self.codec, first_chunk), all)
    }

    /// What is kept back counts with the weight of the push that says it: where that is another one, it is
    /// said as much louder.
    fn carry_over(&mut self, weight: Option<f32>) {
        if let (Some(before), Some(now)) = (self.residual_weight, weight)
            && before != now
        {
            let factor = before / now;
            self.residual.iter_mut().for_each(|value| *value *= factor);
        }
        self.residual_weight = weight;
    }

    /// Encodes `scale` times the gradient until there are so many bytes.
    pub(super) fn encode_to(
        &mut self,
        bytes: u64,
        gradient: &Gather<'_>,
        scale: f32,
    ) -> Result<&[u8], NotFinite> {
        while (self.bytes.len() as u64) < bytes
            && let Some(push) = &mut self.on_its_way
        {
            let (trained, buffers) = self.chunks.chunk(push.chunks);
            let range = push.elements..push.elements + trained + buffers;
            let values = &mut self.next_residual[range.clone()];
            gradient.copy(self.start + range.start as u64, values);
            let fed_back = &self.residual[range.clone()][..trained];
            if !scale_and_add(&mut values[..trained], fed_back, scale) {
                return Err(NotFinite);
            }
            let from = self.bytes.len();
            self.bytes.resize(from + self.codec.chunk_bytes(trained, buffers), 0);
            self.codec.encode(values, trained, &mut self.bytes[from..]);
            *push = EncodedPush { seq: push.seq, chunks: push.chunks + 1, elements: range.end };
        }
        Ok(&self.bytes)
    }

    /// The shard has push `seq`: what it has lost is to be said by the next one.
    pub(super) fn commit(&mut self, seq: u64) {
        self.acknowledged = self.acknowledged.max(seq);
        let whole = |push: &EncodedPush| push.seq == seq && push.chunks == self.chunks.count();
        if self.on_its_way.take_if(|push| push.seq <= seq).is_some_and(|push| whole(&push)) {
            std::mem::swap(&mut self.residual, &mut self.next_residual);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_back_counts_as_much_in_a_push_of_another_weight() {
        let mut encoder = PushEncoder::new(Codec::Int8, ElementRange { start: 0, end: 2 }, 2);
        encoder.residual = vec![3.0, -1.0];
        let cases = [
            (1, Some(32.0), [3.0, -1.0]),
            (1, Some(8.0), [3.0, -1.0]),
            (2, Some(8.0), [12.0, -4.0]),
            (3, Some(64.0), [1.5, -0.5]),
            (4, None, [1.5, -0.5]),
            (5, Some(2.0), [1.5, -0.5]),
        ];
        for (seq, weight, want) in cases {
            encoder.begin(seq, 0, weight);
            assert_eq!(encoder.residual, want, "push {seq} of weight {weight:?}");
        }
        encoder.forget_residual();
        assert_eq!(encoder.residual, [0.0, 0.0]);
    }
}
