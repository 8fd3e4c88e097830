//! 16 bits each, rounded to the nearest, ties to even. What is beyond the largest value becomes the largest
//! value.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::{BLOCK, CodecFault};
use crate::optim::vectorize::vectorize;

const LARGEST_BF16: f32 = bf16::MAX.to_f32_const();
const LARGEST_FP16: f32 = f16::MAX.to_f32_const();
/// Of a bf16 in the upper half of an f32: a little less than a half of its last bit.
const ALMOST_HALF: u32 = 0x7FFF;
const UPPER: u32 = 0xFFFF_0000;
/// A bit in the upper half that every NaN may have.
const QUIET: u32 = 0x0040_0000;

vectorize! {
    /// A bf16 is the upper half of an f32: a loop over whole numbers, which the compiler makes wide.
    pub(super) fn encode_bf16(values: &mut [f32], out: &mut [u8]) {
        for (value, out) in values.iter_mut().zip(out.as_chunks_mut().0) {
            let bits = value.clamp(-LARGEST_BF16, LARGEST_BF16).to_bits();
            // What is as large as that was cut, so that nothing overflows but a NaN, which stays one.
            let rounded = match value.is_nan() {
                true => bits | QUIET,
                false => bits.wrapping_add(ALMOST_HALF + (bits >> 16 & 1)),
            } & UPPER;
            *out = ((rounded >> 16) as u16).to_le_bytes();
            *value -= f32::from_bits(rounded);
        }
    }
}

vectorize! {
    pub(super) fn decode_bf16(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecFault> {
        let mut bad = false;
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            let bits = u16::from_le_bytes(*bytes);
            bad |= is_not_finite(bits, bf16::INFINITY.to_bits());
            *value = f32::from_bits(u32::from(bits) << 16);
        }
        if bad { Err(CodecFault::NotFinite) } else { Ok(()) }
    }
}

/// By the instructions that a processor has for it.
pub(super) fn encode_fp16(values: &mut [f32], out: &mut [u8]) {
    let (mut within, mut halves) = ([0.0; BLOCK], [f16::ZERO; BLOCK]);
    for (values, out) in values.chunks_mut(BLOCK).zip(out.chunks_mut(BLOCK * size_of::<u16>())) {
        let (within, halves) = (&mut within[..values.len()], &mut halves[..values.len()]);
        for (within, value) in within.iter_mut().zip(&*values) {
            *within = value.clamp(-LARGEST_FP16, LARGEST_FP16);
        }
        halves.convert_from_f32_slice(within);
        for (out, half) in out.as_chunks_mut().0.iter_mut().zip(&*halves) {
            *out = half.to_le_bytes();
        }
        halves.convert_to_f32_slice(within);
        for (value, sent) in values.iter_mut().zip(&*within) {
            *value -= sent;
        }
    }
}

pub(super) fn decode_fp16(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecFault> {
    let mut halves = [f16::ZERO; BLOCK];
    let mut bad = false;
    for (values, bytes) in values.chunks_mut(BLOCK).zip(bytes.chunks(BLOCK * size_of::<u16>())) {
        let halves = &mut halves[..values.len()];
        for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
            *half = f16::from_le_bytes(*bytes);
            bad |= is_not_finite(half.to_bits(), f16::INFINITY.to_bits());
        }
        halves.convert_to_f32_slice(values);
    }
    if bad { Err(CodecFault::NotFinite) } else { Ok(()) }
}

/// Whether all bits of the exponent are set, which are those of infinity.
#[inline(always)]
fn is_not_finite(bits: u16, infinity: u16) -> bool {
    bits & infinity == infinity
}
