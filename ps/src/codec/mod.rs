//! How a gradient travels: chunk by chunk, as it is or in fewer bytes.
//!
//! | codec | one chunk of n trained elements | bytes |
//! |---|---|---|
//! | plain | n × f32 | 4 n |
//! | bf16, fp16 | n × 16 bits | 2 n |
//! | int8 | for each 256 elements, the last ones maybe fewer: scale f32, then each as i8; value = scale × i8 | n + 4 ⌈n / 256⌉ |
//! | top-k | k × f32, then k × place u16, ascending; every other value is zero | 6 k |
//!
//! All little-endian. Buffers, such as running statistics, are no gradients: they follow as f32, whatever the
//! codec. The size of a chunk follows from the codec and the chunk alone, so that a push can be resumed at
//! any chunk, and every length is known before anything is read.
//!
//! Encoding leaves in the values what it has lost, exactly: value = decoded + lost. Whoever adds that to the
//! next gradient loses nothing in the long run (error feedback: Karimireddy et al., Error Feedback Fixes
//! SignSGD, ICML 2019, arXiv:1901.09847). Only where a value is beyond the largest of the encoding may the
//! sum be off by its last bit.
//!
//! Pure. One pass over a chunk that is in cache (top-k: five), without allocation.

mod chunks;
mod halves;
mod int8;
#[cfg(test)]
mod tests;
mod top_k;

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use syncline_scheduler::spec::{Compression, PullCompression};

pub use chunks::ChunkedRange;

use crate::shard::CHUNK_ELEMENTS;

/// Elements that are encoded together, and of int8 those that share a scale.
const BLOCK: usize = 256;
/// A chunk has as many places as an index has values.
const _: () = assert!(CHUNK_ELEMENTS == 1 << u16::BITS);

/// How the gradient of one push travels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Codec {
    /// As f32: nothing is lost.
    #[default]
    Plain,
    /// The upper 16 bits of an f32, rounded: its range, with 8 bits of precision.
    Bf16,
    /// Half precision of IEEE 754: 11 bits of precision, numbers up to 65504.
    Fp16,
    /// One byte each, a multiple of a scale that up to 256 neighbors share.
    Int8,
    /// The values of largest magnitude, each with its place in the chunk; all others are zero.
    TopK {
        /// How many of a full chunk, at least 1; of a shorter one the same share, rounded up.
        #[serde(deserialize_with = "kept_of_chunk")]
        of_full_chunk: u32,
    },
}

/// As many elements as a chunk may keep.
fn kept_of_chunk<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let kept = u32::deserialize(from)?;
    match (1..=CHUNK_ELEMENTS as u32).contains(&kept) {
        true => Ok(kept),
        false => Err(D::Error::custom("no chunk has so many elements")),
    }
}

/// Why bytes are no chunk of a push.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum CodecFault {
    /// There are more or fewer bytes than codec and chunk say.
    #[error("a chunk of {got} encoded bytes, expected {expected}")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes that [`Codec::chunk_bytes`] says.
        expected: usize,
    },
    /// A value of bf16, fp16 or top-k is NaN or infinite.
    #[error("an encoded number that is not finite")]
    NotFinite,
    /// A scale of int8 is negative, not finite, or so large that a value could be infinite.
    #[error("a scale of {0}, expected one from 0 to {max:e}", max = int8::MAX_SCALE)]
    Scale(f32),
    /// Places of top-k do not ascend, or one lies beyond the gradient.
    #[error("place {place} in a chunk of {trained} behind place {before}")]
    Place {
        /// The place that is wrong, in the chunk, from 0.
        place: usize,
        /// The place in front of it; 0 if it is the first.
        before: usize,
        /// Elements of the chunk that are a gradient: every place lies below.
        trained: usize,
    },
}

impl Codec {
    /// What a job's setting says; `None` where each worker is to find out itself.
    pub fn of(setting: Compression) -> Option<Self> {
        match setting {
            Compression::None => Some(Self::Plain),
            Compression::Bf16 => Some(Self::Bf16),
            Compression::Fp16 => Some(Self::Fp16),
            Compression::Int8 => Some(Self::Int8),
            Compression::TopK(share) => {
                let kept = (f64::from(share) * CHUNK_ELEMENTS as f64).ceil() as u32;
                Some(Self::TopK { of_full_chunk: kept.clamp(1, CHUNK_ELEMENTS as u32) })
            }
            Compression::Auto => None,
        }
    }

    /// What a job's setting says of pulls.
    pub fn of_pulls(setting: PullCompression) -> Self {
        match setting {
            PullCompression::None => Self::Plain,
            PullCompression::Bf16 => Self::Bf16,
            PullCompression::Fp16 => Self::Fp16,
        }
    }

    /// Bytes of a chunk of which the first `trained` elements are a gradient and `buffers` more are not.
    pub fn chunk_bytes(self, trained: usize, buffers: usize) -> usize {
        let gradient = match self {
            Self::Plain => trained * size_of::<f32>(),
            Self::Bf16 | Self::Fp16 => trained * size_of::<u16>(),
            Self::Int8 => int8::bytes(trained),
            Self::TopK { of_full_chunk } => top_k::bytes(top_k::kept(of_full_chunk, trained)),
        };
        gradient + buffers * size_of::<f32>()
    }

    /// Encodes a chunk into `out`, which is as long as [`Codec::chunk_bytes`] says, and leaves in the first
    /// `trained` of `values` what was lost, in the others zero. The gradient must be finite.
    pub fn encode(self, values: &mut [f32], trained: usize, out: &mut [u8]) {
        let (gradient, buffers) = values.split_at_mut(trained);
        let (encoded, behind) = out.split_at_mut(self.chunk_bytes(trained, 0));
        match self {
            Self::Plain => put_plain(gradient, encoded),
            Self::Bf16 => halves::encode_bf16(gradient, encoded),
            Self::Fp16 => halves::encode_fp16(gradient, encoded),
            Self::Int8 => int8::encode(gradient, encoded),
            Self::TopK { of_full_chunk } => {
                top_k::encode(top_k::kept(of_full_chunk, trained), gradient, encoded);
            }
        }
        put_plain(buffers, behind);
    }

    /// Decodes a chunk. After [`CodecFault::NotFinite`] of bf16 and fp16 `values` hold what was sent, after
    /// other faults anything. Whatever is decoded is finite, buffers and plain chunks left out.
    pub fn decode(self, bytes: &[u8], trained: usize, values: &mut [f32]) -> Result<(), CodecFault> {
        let (gradient, buffers) = values.split_at_mut(trained);
        let expected = self.chunk_bytes(trained, buffers.len());
        if bytes.len() != expected {
            return Err(CodecFault::Length { got: bytes.len(), expected });
        }
        let (encoded, behind) = bytes.split_at(self.chunk_bytes(trained, 0));
        take_plain(behind, buffers);
        match self {
            Self::Plain => {
                take_plain(encoded, gradient);
                Ok(())
            }
            Self::Bf16 => halves::decode_bf16(encoded, gradient),
            Self::Fp16 => halves::decode_fp16(encoded, gradient),
            Self::Int8 => int8::decode(encoded, gradient),
            Self::TopK { of_full_chunk } => {
                top_k::decode(top_k::kept(of_full_chunk, trained), encoded, gradient)
            }
        }
    }
}

fn put_plain(values: &mut [f32], out: &mut [u8]) {
    out.copy_from_slice(bytemuck::cast_slice(values));
    values.fill(0.0);
}

fn take_plain(bytes: &[u8], values: &mut [f32]) {
    bytemuck::cast_slice_mut(values).copy_from_slice(bytes);
}
