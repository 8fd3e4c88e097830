//! Where the values of a chunk lie: in memory of the chunk's own, or in a slot that is lent.

use std::{ops::Range, ptr, slice, sync::Arc};

use crate::transport::Mapping;

/// Values that are changed while they are in the first-level cache, 16 KiB.
const BLOCK_ELEMENTS: usize = 4096;

/// The latest values of a chunk.
#[derive(Debug)]
pub(in crate::shard) struct ChunkValues {
    /// They lie here, unless they lie in a slot; then this is what was changed last where no slot could be
    /// written.
    home: Vec<f32>,
    slot: Option<SlotPart>,
}

/// The place of one chunk in a slot.
#[derive(Debug, Clone)]
pub(in crate::shard) struct SlotPart {
    mapping: Arc<Mapping>,
    slot: usize,
    /// Bytes of the mapping in front of it.
    at: usize,
    elements: usize,
}

impl SlotPart {
    /// The `elements` floats of a chunk in slot number `slot`: from byte `at` on, which is a multiple of
    /// four, in memory that was mapped for writing.
    ///
    /// # Panics
    /// If the mapping does not have them.
    pub(in crate::shard) fn new(mapping: &Arc<Mapping>, slot: usize, at: usize, elements: usize) -> Self {
        let end = at + elements * size_of::<f32>();
        assert!(
            at.is_multiple_of(align_of::<f32>()) && end <= mapping.bytes(),
            "a chunk lies within its slot"
        );
        Self { mapping: mapping.clone(), slot, at, elements }
    }

    fn first(&self) -> *mut f32 {
        self.mapping.base().as_ptr().wrapping_add(self.at).cast()
    }

    #[expect(unsafe_code, reason = "a slot lies in memory that other processes map")]
    pub(super) fn values(&self) -> &[f32] {
        // SAFETY: the memory cannot shrink. Other processes map it for reading only, and this one writes
        // there through `ChunkValues` alone, which has `&mut` then.
        unsafe { self.mapping.floats(self.at, self.elements) }
    }

    /// Copies `values` there. The caller holds the lock of the chunk, and nobody reads the slot.
    ///
    /// # Panics
    /// If they are as many as the chunk has not.
    #[expect(unsafe_code, reason = "a slot lies in memory that other processes map")]
    pub(in crate::shard) fn fill(&self, values: &[f32]) {
        assert_eq!(values.len(), self.elements, "a chunk keeps its length");
        // SAFETY: the place is as long as `values`. Where both are the same, this writes what is there.
        unsafe { ptr::copy(values.as_ptr(), self.first(), self.elements) };
    }

    fn is(&self, other: &Self) -> bool {
        self.first() == other.first()
    }
}

/// What of the trained elements of a chunk, and of its buffers behind them, lies in a block of it.
pub(super) struct Cut {
    pub trained: Range<usize>,
    pub buffers: Range<usize>,
}

impl Cut {
    fn of(trained: usize, start: usize, elements: usize) -> Self {
        let end = start + elements;
        Self {
            trained: start.min(trained)..end.min(trained),
            buffers: start.saturating_sub(trained)..end.saturating_sub(trained),
        }
    }
}

impl ChunkValues {
    /// Values at home.
    pub(super) fn new(values: Vec<f32>) -> Self {
        Self { home: values, slot: None }
    }

    pub(super) fn as_slice(&self) -> &[f32] {
        self.slot.as_ref().map_or(&self.home, SlotPart::values)
    }

    pub(super) fn len(&self) -> usize {
        self.home.len()
    }

    /// The slot that they lie in, if they do not lie at home.
    pub(super) fn slot(&self) -> Option<usize> {
        self.slot.as_ref().map(|part| part.slot)
    }

    /// The values at home, where they lie as long as nothing of the job is lent.
    pub(super) fn at_home(&mut self) -> &mut [f32] {
        debug_assert!(self.slot.is_none(), "rows are not lent");
        &mut self.home
    }

    /// Changes all values, block by block, and moves them to the slot `to`, or home: whoever reads them where
    /// they were goes on reading what they were. The optimizer moves the first `trained` of them, buffers
    /// lie behind those: `change` gets what of both lies in each block, and which of the chunk's it is. A
    /// slot is written only where nobody reads it.
    #[expect(unsafe_code, reason = "a slot lies in memory that other processes map")]
    pub(super) fn rewrite(
        &mut self,
        to: Option<SlotPart>,
        trained: usize,
        mut change: impl FnMut(Cut, &mut [f32], &mut [f32]),
    ) {
        let elements = self.home.len();
        let stays = match (&self.slot, &to) {
            (None, None) => true,
            (Some(from), Some(to)) => from.is(to),
            _ => false,
        };
        let from = self.as_slice().as_ptr();
        let target = to.as_ref().map_or(self.home.as_mut_ptr(), SlotPart::first);
        for start in (0..elements).step_by(BLOCK_ELEMENTS) {
            let count = BLOCK_ELEMENTS.min(elements - start);
            // SAFETY: `from` and `target` each point to as many floats as the chunk has, at home or in a
            // slot, and are the same place or do not overlap. The slice is the only one there is:
            // `&mut self` sees to this process, and the caller to a slot that no other process
            // reads.
            let block = unsafe {
                let target = target.add(start);
                if !stays {
                    ptr::copy_nonoverlapping(from.add(start), target, count);
                }
                slice::from_raw_parts_mut(target, count)
            };
            let cut = Cut::of(trained, start, count);
            let (values, buffers) = block.split_at_mut(cut.trained.len());
            change(cut, values, buffers);
        }
        self.slot = to;
    }
}
