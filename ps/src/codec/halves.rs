//! 16 bits each, rounded to the nearest, ties to even. What is beyond the largest value becomes the largest value.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::{BLOCK, CodecFault};

pub(super) fn encode_bf16(values: &mut [f32], out: &mut [u8]) {
    encode(values, out, bf16::ZERO, bf16::MAX.to_f32(), bf16::to_bits);
}

pub(super) fn encode_fp16(values: &mut [f32], out: &mut [u8]) {
    encode(values, out, f16::ZERO, f16::MAX.to_f32(), f16::to_bits);
}

pub(super) fn decode_bf16(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecFault> {
    decode(bytes, values, bf16::ZERO, bf16::from_bits, bf16::INFINITY.to_bits())
}

pub(super) fn decode_fp16(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecFault> {
    decode(bytes, values, f16::ZERO, f16::from_bits, f16::INFINITY.to_bits())
}

fn encode<T: Copy>(values: &mut [f32], out: &mut [u8], zero: T, largest: f32, bits: impl Fn(T) -> u16)
where
    [T]: HalfFloatSliceExt,
{
    let (mut within, mut halves) = ([0.0; BLOCK], [zero; BLOCK]);
    for (values, out) in values.chunks_mut(BLOCK).zip(out.chunks_mut(2 * BLOCK)) {
        let (within, halves) = (&mut within[..values.len()], &mut halves[..values.len()]);
        for (within, value) in within.iter_mut().zip(&*values) {
            *within = value.clamp(-largest, largest);
        }
        halves.convert_from_f32_slice(within);
        for (out, half) in out.as_chunks_mut().0.iter_mut().zip(&*halves) {
            *out = bits(*half).to_le_bytes();
        }
        halves.convert_to_f32_slice(within);
        for (value, sent) in values.iter_mut().zip(&*within) {
            *value -= sent;
        }
    }
}

/// `exponent`: all bits of the exponent, which only what is not finite has.
fn decode<T: Copy>(
    bytes: &[u8],
    values: &mut [f32],
    zero: T,
    from_bits: impl Fn(u16) -> T,
    exponent: u16,
) -> Result<(), CodecFault>
where
    [T]: HalfFloatSliceExt,
{
    let mut halves = [zero; BLOCK];
    let mut bad = false;
    for (values, bytes) in values.chunks_mut(BLOCK).zip(bytes.chunks(2 * BLOCK)) {
        let halves = &mut halves[..values.len()];
        for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
            let bits = u16::from_le_bytes(*bytes);
            bad |= bits & exponent == exponent;
            *half = from_bits(bits);
        }
        halves.convert_to_f32_slice(values);
    }
    if bad { Err(CodecFault::NotFinite) } else { Ok(()) }
}
