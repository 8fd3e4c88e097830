//! Many tensors as one flat run of bytes, without copying them together.

use std::io::{self, IoSlice, Write};

/// Pieces handed to the kernel at once; it takes 1024.
const PIECES: usize = 64;

/// Slices in layout order, seen as one array.
pub(super) struct Gather<'a> {
    slices: &'a [&'a [f32]],
    /// First byte of each slice in the flat array, and the end of the last.
    starts: Vec<u64>,
}

impl<'a> Gather<'a> {
    pub(super) fn new(slices: &'a [&'a [f32]]) -> Self {
        let mut end = 0;
        let mut starts = Vec::with_capacity(slices.len() + 1);
        starts.push(0);
        starts.extend(slices.iter().map(|slice| {
            end += size_of_val(*slice) as u64;
            end
        }));
        Self { slices, starts }
    }

    pub(super) fn elements(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0) / size_of::<f32>() as u64
    }

    /// Copies the elements from `from` on.
    pub(super) fn copy(&self, from: u64, into: &mut [f32]) {
        let mut at = from * size_of::<f32>() as u64;
        let mut index = self.starts.partition_point(|&start| start <= at).saturating_sub(1);
        let mut left = into;
        while !left.is_empty() && index < self.slices.len() {
            let within = (at - self.starts[index]) as usize / size_of::<f32>();
            let slice = &self.slices[index][within..];
            let (now, later) = left.split_at_mut(slice.len().min(left.len()));
            now.copy_from_slice(&slice[..now.len()]);
            at += size_of_val(now) as u64;
            left = later;
            index += 1;
        }
    }

    /// Writes what one call takes of `head` and then of the flat bytes `from..to`; returns the bytes written.
    pub(super) fn write_some(
        &self,
        out: &mut impl Write,
        head: &'a [u8],
        from: u64,
        to: u64,
    ) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        if !head.is_empty() {
            pieces[0] = IoSlice::new(head);
            count = 1;
        }
        let mut at = from;
        let mut index = self.starts.partition_point(|&start| start <= from).saturating_sub(1);
        while at < to && count < PIECES && index < self.slices.len() {
            let bytes: &[u8] = bytemuck::cast_slice(self.slices[index]);
            let start = self.starts[index];
            let end = self.starts[index + 1].min(to);
            if at < end {
                pieces[count] = IoSlice::new(&bytes[(at - start) as usize..(end - start) as usize]);
                count += 1;
                at = end;
            }
            index += 1;
        }
        out.write_vectored(&pieces[..count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes at most `0` bytes per call.
    struct Narrow(usize, Vec<u8>);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn any_cut_sends_the_same_bytes(
            lengths in prop::collection::vec(0usize..40, 0..100),
            cut in any::<prop::sample::Index>(),
            quantum in 1usize..300,
        ) {
            let total: usize = lengths.iter().sum();
            let flat: Vec<f32> = (0..total).map(|i| i as f32).collect();
            let mut rest = &flat[..];
            let slices: Vec<&[f32]> = lengths.iter().map(|&n| {
                let (slice, tail) = rest.split_at(n);
                rest = tail;
                slice
            }).collect();
            let gather = Gather::new(&slices);
            prop_assert_eq!(gather.elements(), total as u64);
            let first = cut.index(total + 1);
            let mut copied = vec![0.0; (total - first).min(quantum)];
            gather.copy(first as u64, &mut copied);
            prop_assert_eq!(&copied, &flat[first..first + copied.len()]);
            let (mut at, end) = (cut.index(total + 1) as u64 * 4, total as u64 * 4);
            let want = bytemuck::cast_slice::<f32, u8>(&flat)[at as usize..].to_vec();
            let mut out = Narrow(quantum, Vec::new());
            while at < end {
                at += gather.write_some(&mut out, &[], at, end).unwrap() as u64;
            }
            prop_assert_eq!(out.1, want);
        }
    }
}
