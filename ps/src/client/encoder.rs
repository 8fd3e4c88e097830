//! What one shard is sent of pushes that are compressed, and what the encoding has kept back.

use syncline_scheduler::spec::ElementRange;

use super::gather::Gather;
use crate::{
    codec::{ChunkedRange, Codec},
    optim::{add_to_mean, scale_and_add},
};

/// A push that weighs less than this share of the one before says nothing of what was kept back.
const LEAST_SHARE: f32 = 0.5;

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
    usual_weight: Option<f32>,
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
    /// `None`: it says what was kept back. Otherwise that stays, and this share of what it loses itself is
    /// added.
    keeps: Option<f32>,
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
            usual_weight: None,
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
        }
        let all = self.chunks.bytes_from(self.codec, 0);
        if is_new {
            let keeps = self.keeps(weight);
            self.on_its_way = Some(EncodedPush { seq, chunks: 0, elements: 0, keeps });
            self.bytes.clear();
            self.bytes.reserve_exact(all as usize);
        }
        (all - self.chunks.bytes_from(self.codec, first_chunk), all)
    }

    /// What is kept back counts with the weight of the push that says it. In the last batch of an epoch, which
    /// may be a single sample, it would be lost in a round of whole batches, and be as loud as in any other
    /// where the whole round is short: how long a round is, nobody knows here. So it waits for the next push.
    /// Where all pushes weigh less from now on, it waits for one or a few.
    fn keeps(&mut self, weight: Option<f32>) -> Option<f32> {
        let share = self.usual_weight.zip(weight).map(|(usual, now)| now / usual);
        // The last one that is encoded: behind it nothing is kept.
        let keeps = share.filter(|share| *share < LEAST_SHARE && self.codec != Codec::Plain);
        self.usual_weight = match (keeps, self.usual_weight) {
            (Some(_), Some(usual)) => Some(usual * LEAST_SHARE),
            _ => weight,
        };
        keeps
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
            let kept_back = &self.residual[range.clone()][..trained];
            let said = if push.keeps.is_some() { 0.0 } else { 1.0 };
            if !scale_and_add(&mut values[..trained], kept_back, scale, said) {
                return Err(NotFinite);
            }
            let from = self.bytes.len();
            self.bytes.resize(from + self.codec.chunk_bytes(trained, buffers), 0);
            self.codec.encode(values, trained, &mut self.bytes[from..]);
            if let Some(share) = push.keeps {
                add_to_mean(&mut values[..trained], share, kept_back, 1.0);
            }
            (push.chunks, push.elements) = (push.chunks + 1, range.end);
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

    /// Pushes of these weights, all of the gradient (3, 1), of which the larger element is sent: what each
    /// says, and what is kept back behind the last.
    fn pushed(weights: &[Option<f32>]) -> (Vec<[f32; 2]>, Vec<f32>) {
        let top = Codec::TopK { of_full_chunk: 1 };
        let mut encoder = PushEncoder::new(top, ElementRange { start: 0, end: 2 }, 2);
        let slices = [&[3.0f32, 1.0][..]];
        let gradient = Gather::new(&slices);
        let mut said = Vec::new();
        for (seq, weight) in (1..).zip(weights) {
            let (_, all) = encoder.begin(seq, 0, *weight);
            let bytes = encoder.encode_to(all, &gradient, 1.0).unwrap().to_vec();
            let mut values = [0.0; 2];
            top.decode(&bytes, 2, &mut values).unwrap();
            said.push(values);
            encoder.commit(seq);
        }
        (said, encoder.residual)
    }

    #[test]
    fn what_is_kept_back_is_said_as_loud_as_it_was_and_not_in_a_push_of_a_few_samples() {
        let [large, small] = [[3.0, 0.0], [0.0, 4.0]];
        type Case<'a> = (&'a [f32], &'a [[f32; 2]], [f32; 2]);
        #[rustfmt::skip]
        let cases: [Case<'_>; 6] = [
            (&[64.0, 64.0, 64.0, 64.0], &[large, large, large, small],                [3.0, 0.0]),
            // Weights that differ a little, such as numbers of tokens, change nothing.
            (&[64.0, 40.0, 70.0, 50.0], &[large, large, large, small],                [3.0, 0.0]),
            // One of a few samples says its own alone, and loses a share of that.
            (&[64.0, 64.0, 64.0, 4.0],  &[large, large, large, large],                [0.0, 3.0625]),
            (&[64.0, 64.0, 64.0, 4.0, 64.0], &[large, large, large, large, [0.0, 4.0625]], [3.0, 0.0]),
            // Where all weigh less from now on, it is said again by the second of them.
            (&[64.0, 64.0, 16.0, 16.0], &[large, large, large, [0.0, 3.25]],          [3.0, 0.0]),
            (&[8.0, 64.0, 64.0, 64.0],  &[large, large, large, small],                [3.0, 0.0]),
        ];
        for (weights, says, kept) in cases {
            let weights: Vec<Option<f32>> = weights.iter().copied().map(Some).collect();
            assert_eq!(pushed(&weights), (says.to_vec(), kept.to_vec()), "{weights:?}");
        }
        assert_eq!(pushed(&[None; 4]), (vec![large, large, large, small], vec![3.0, 0.0]));
    }

    #[test]
    fn the_last_encoded_push_keeps_nothing_back_however_little_it_weighs() {
        let mut encoder = PushEncoder::new(Codec::Int8, ElementRange { start: 0, end: 2 }, 2);
        encoder.begin(1, 0, Some(64.0));
        encoder.set_next_codec(Codec::Plain);
        encoder.begin(2, 0, Some(1.0));
        assert!(encoder.on_its_way.is_some_and(|push| push.keeps.is_none()));
    }
}
