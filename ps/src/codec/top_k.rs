//! The largest values of a chunk with their places; of equal ones those that come first.

use super::CodecFault;
use crate::shard::CHUNK_ELEMENTS;

const VALUE_BYTES: usize = size_of::<f32>();
const PLACE_BYTES: usize = size_of::<u16>();
/// The bits of a magnitude are looked at in these pieces: where each begins, and how many bits it has.
const DIGITS: [(u32, u32); 3] = [(20, 11), (10, 10), (0, 10)];
const BUCKETS: usize = 1 << 11;

/// How many of `elements` are kept if it were so many of a full chunk.
pub(super) fn kept(of_full_chunk: u32, elements: usize) -> usize {
    (elements as u64 * u64::from(of_full_chunk)).div_ceil(CHUNK_ELEMENTS as u64).min(elements as u64) as usize
}

pub(super) fn bytes(kept: usize) -> usize {
    kept * (VALUE_BYTES + PLACE_BYTES)
}

pub(super) fn encode(kept: usize, values: &mut [f32], out: &mut [u8]) {
    let (threshold, mut equal) = threshold(kept, values);
    let (sent, places) = out.split_at_mut(kept * VALUE_BYTES);
    let mut slots = sent.as_chunks_mut().0.iter_mut().zip(places.as_chunks_mut().0);
    for (place, value) in values.iter_mut().enumerate() {
        let magnitude = value.abs().to_bits();
        if magnitude < threshold || (magnitude == threshold && equal == 0) {
            continue;
        }
        equal -= usize::from(magnitude == threshold);
        let Some((slot, at)) = slots.next() else { break };
        (*slot, *at) = (value.to_le_bytes(), (place as u16).to_le_bytes());
        *value = 0.0;
    }
}

/// The magnitude of the `kept`-th largest value, and how many of just this one are among the largest. A radix
/// selection: a count of the values by the highest bits of their magnitudes says which those of the wanted
/// one are, then by the next.
fn threshold(kept: usize, values: &[f32]) -> (u32, usize) {
    let (mut prefix, mut wanted) = (0, kept);
    for (shift, width) in DIGITS {
        let mut counts = [0u32; BUCKETS];
        for value in values {
            let magnitude = value.abs().to_bits();
            if magnitude >> (shift + width) == prefix {
                counts[(magnitude >> shift) as usize & ((1 << width) - 1)] += 1;
            }
        }
        let mut digit = (1usize << width) - 1;
        while digit > 0 && (counts[digit] as usize) < wanted {
            wanted -= counts[digit] as usize;
            digit -= 1;
        }
        prefix = prefix << width | digit as u32;
    }
    (prefix, wanted)
}

pub(super) fn decode(kept: usize, bytes: &[u8], values: &mut [f32]) -> Result<(), CodecFault> {
    values.fill(0.0);
    let trained = values.len();
    let (sent, places) = bytes.split_at(kept * VALUE_BYTES);
    let mut before = None;
    for (value, place) in sent.as_chunks().0.iter().zip(places.as_chunks().0) {
        let (value, place) = (f32::from_le_bytes(*value), usize::from(u16::from_le_bytes(*place)));
        if before.is_some_and(|before| place <= before) || place >= trained {
            return Err(CodecFault::Place { place, before: before.unwrap_or(0), trained });
        }
        if !value.is_finite() {
            return Err(CodecFault::NotFinite);
        }
        values[place] = value;
        before = Some(place);
    }
    Ok(())
}
