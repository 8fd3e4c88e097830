//! 8 bits each: a block's scale is its largest magnitude over 127, and each value the nearest multiple of it.

use super::{BLOCK, CodecFault};
use crate::optim::vectorize::vectorize;

/// Bytes in front of a block.
const SCALE_BYTES: usize = size_of::<f32>();
const LEVELS: f32 = 127.0;
/// No multiple of a scale up to this one, -128 included, is infinite.
pub(super) const MAX_SCALE: f32 = f32::MAX / 128.0;
/// 1.5 × 2^23: added to a small number, it leaves the nearest integer, ties to even, in the low bits of the
/// sum.
const ROUNDING: f32 = 12_582_912.0;

pub(super) fn bytes(elements: usize) -> usize {
    elements + elements.div_ceil(BLOCK) * SCALE_BYTES
}

vectorize! {
    pub(super) fn encode(values: &mut [f32], out: &mut [u8]) {
        for (values, out) in values.chunks_mut(BLOCK).zip(out.chunks_mut(SCALE_BYTES + BLOCK)) {
            // The order of magnitudes is that of their bits.
            let largest = values.iter().fold(0, |most: u32, value| most.max(value.abs().to_bits()));
            let scale = (f32::from_bits(largest) / LEVELS).min(MAX_SCALE);
            let (head, steps) = out.split_at_mut(SCALE_BYTES);
            head.copy_from_slice(&scale.to_le_bytes());
            // All values may be so small that their scale is zero.
            let divisor = if scale > 0.0 { scale } else { 1.0 };
            for (step, value) in steps.iter_mut().zip(values) {
                let near = (*value / divisor).clamp(-LEVELS, LEVELS) + ROUNDING;
                *step = near.to_bits() as u8;
                *value -= (near - ROUNDING) * scale;
            }
        }
    }
}

vectorize! {
    pub(super) fn decode(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecFault> {
        for (values, bytes) in values.chunks_mut(BLOCK).zip(bytes.chunks(SCALE_BYTES + BLOCK)) {
            let Some((scale, steps)) = bytes.split_first_chunk() else { break };
            let scale = f32::from_le_bytes(*scale);
            if !(0.0..=MAX_SCALE).contains(&scale) {
                return Err(CodecFault::Scale(scale));
            }
            for (value, step) in values.iter_mut().zip(steps) {
                *value = f32::from(*step as i8) * scale;
            }
        }
        Ok(())
    }
}
