//! Parameters that workers on this machine read where they lie, instead of receiving them.
//!
//! Beside the home of its values a shard keeps a few places for all of them, *slots*, in memory that local
//! workers map. A pull is answered with the number of a slot that holds the latest values, and the worker
//! computes on it until its next push or pull gives it back. Meanwhile nobody writes there; the shard goes on
//! in another slot.
//!
//! Each chunk counts how often it was changed, and each slot knows which state of it it holds. A push or a
//! barrier that changes a chunk reads it where it lies, possibly in a slot that is read, and writes it to a
//! slot that nobody reads, or home if there is none: no value is written twice. The pull that follows finds
//! that slot up to date, or copies the few chunks that differ. Workers that pull the same state, as all do
//! behind a barrier, share one slot.
//!
//! Cost: beside the home of each chunk a copy of the values for each worker that computes on a state of its
//! own, at most [`MAX_LENT_BYTES`] or one copy; whoever comes when all slots are read gets the values sent.
//! The worker needs no copy of its own.

use std::{
    fmt,
    io::{self, ErrorKind},
    ops::Range,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use syncline_rpc::threads::lock;
use tracing::warn;

use super::{
    JobShard,
    chunk::{CHUNK_BYTES, Chunk, SlotPart},
};
use crate::transport::{Mapping, PAGE_BYTES, readable_memory, take_pages};

/// Bytes that the slots of one job on one shard may take together, if they are more than one.
const MAX_LENT_BYTES: usize = 64 << 20;
/// Slots of one job on one shard: workers on this machine that compute on different states at the same time.
const MAX_SLOTS: usize = 32;
/// In place of a slot's number: no slot.
const NONE: usize = usize::MAX;

/// Copies of one job's values that local workers may map.
pub(super) struct LentSlots {
    memory: OwnedFd,
    mapping: Arc<Mapping>,
    slot_bytes: usize,
    /// For each chunk, under the lock of the chunk.
    chunks: Vec<ChunkStates>,
    /// The slot that chunks which change go to. Read under the lock of a chunk, and taken away before all
    /// those locks are taken once: behind that nobody writes there.
    filling: AtomicUsize,
    readers: Mutex<Readers>,
}

/// Which state of a chunk is where.
struct ChunkStates {
    /// Changes of the chunk so far, from 1.
    latest: AtomicU64,
    /// What each slot has of it; 0: nothing.
    in_slot: Vec<AtomicU64>,
}

/// Who reads which slot.
struct Readers {
    slots: Vec<Slot>,
    /// The slot that was lent last.
    newest: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// It has no pages yet.
    Unused,
    ReadBy(u32),
    /// It is written no more: there was no memory for it, or nobody will say when it is read no more.
    Retired,
}

/// What a worker needs to know of the slots, to map them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotShape {
    /// From one slot to the next.
    pub slot_bytes: u64,
    /// How many slots lie in the memory, one behind the other.
    pub slots: u32,
}

impl LentSlots {
    fn create(range_bytes: usize, chunks: usize) -> io::Result<Self> {
        let slot_bytes = range_bytes.next_multiple_of(PAGE_BYTES);
        let slots = (MAX_LENT_BYTES / slot_bytes).clamp(1, MAX_SLOTS);
        let bytes = slot_bytes.checked_mul(slots).ok_or(ErrorKind::OutOfMemory)?;
        let (memory, mapping) = readable_memory(bytes)?;
        let states = || ChunkStates {
            latest: AtomicU64::new(1),
            in_slot: (0..slots).map(|_| AtomicU64::new(0)).collect(),
        };
        Ok(Self {
            memory,
            mapping: Arc::new(mapping),
            slot_bytes,
            chunks: (0..chunks).map(|_| states()).collect(),
            filling: AtomicUsize::new(NONE),
            readers: Mutex::new(Readers { slots: vec![Slot::Unused; slots], newest: None }),
        })
    }

    fn shape(&self) -> SlotShape {
        let slots = self.mapping.bytes() / self.slot_bytes;
        SlotShape { slot_bytes: self.slot_bytes as u64, slots: slots as u32 }
    }

    /// Chunk `index`, which is locked, has other values now.
    fn changed(&self, index: usize, chunk: &Chunk) {
        let state = &self.chunks[index];
        let latest = state.latest.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(in_slot) = chunk.slot().and_then(|slot| state.in_slot.get(slot)) {
            in_slot.store(latest, Ordering::Relaxed);
        }
    }

    /// Where chunk `index`, which is locked, is to go when it changes; `None`: home.
    fn place(&self, index: usize, chunk: &Chunk) -> Option<SlotPart> {
        let slot = self.filling.load(Ordering::Relaxed);
        (slot != NONE).then(|| self.part_of(slot, index, chunk))
    }

    fn part_of(&self, slot: usize, index: usize, chunk: &Chunk) -> SlotPart {
        let at = slot * self.slot_bytes + index * CHUNK_BYTES;
        SlotPart::new(&self.mapping, slot, at, chunk.values().len())
    }

    /// Chunks are about to change: from here on they go to a slot, if there is one that nobody reads.
    fn prepare(&self) {
        if self.filling.load(Ordering::Relaxed) != NONE {
            return;
        }
        let mut readers = lock(&self.readers);
        if self.filling.load(Ordering::Relaxed) == NONE
            && let Some(slot) = self.unread(&mut readers)
        {
            self.filling.store(slot, Ordering::Relaxed);
        }
    }

    /// Lends a slot with the latest values; `None` while all are read.
    fn lend(&self, chunks: &[Mutex<Chunk>]) -> Option<u32> {
        let mut readers = lock(&self.readers);
        let filling = self.filling.load(Ordering::Relaxed);
        if let Some(newest) = readers.newest.filter(|newest| *newest != filling)
            && self.is_up_to_date(newest, chunks)
        {
            readers.add(newest);
            return Some(newest as u32);
        }
        let slot = if filling == NONE { self.unread(&mut readers)? } else { filling };
        self.filling.store(NONE, Ordering::Relaxed);
        readers.newest = Some(slot);
        readers.add(slot);
        // Under the lock of the readers: nobody shares what is not whole yet.
        for (index, chunk) in chunks.iter().enumerate() {
            let chunk = lock(chunk);
            let state = &self.chunks[index];
            let latest = state.latest.load(Ordering::Relaxed);
            if state.in_slot[slot].load(Ordering::Relaxed) != latest {
                self.part_of(slot, index, &chunk).fill(chunk.values());
                state.in_slot[slot].store(latest, Ordering::Relaxed);
            }
        }
        Some(slot as u32)
    }

    fn give_back(&self, slot: u32) {
        if let Some(Slot::ReadBy(readers @ 1..)) = lock(&self.readers).slots.get_mut(slot as usize) {
            *readers -= 1;
        }
    }

    /// Nothing is written any more to a slot that was lent.
    fn retire(&self) {
        lock(&self.readers).slots.fill(Slot::Retired);
    }

    fn is_up_to_date(&self, slot: usize, chunks: &[Mutex<Chunk>]) -> bool {
        chunks.iter().zip(&self.chunks).all(|(chunk, state)| {
            let _chunk = lock(chunk);
            state.in_slot[slot].load(Ordering::Relaxed) == state.latest.load(Ordering::Relaxed)
        })
    }

    /// A slot that nobody reads. Pages are taken only where no slot that has some is free.
    fn unread(&self, readers: &mut Readers) -> Option<usize> {
        let slots = &mut readers.slots;
        if let Some(free) = slots.iter().position(|slot| *slot == Slot::ReadBy(0)) {
            return Some(free);
        }
        let unused = slots.iter().position(|slot| *slot == Slot::Unused)?;
        if let Err(error) = take_pages(&self.memory, self.part(unused)) {
            warn!(%error, "no memory to lend more parameters in: they are sent");
            slots.iter_mut().filter(|slot| **slot == Slot::Unused).for_each(|slot| *slot = Slot::Retired);
            return None;
        }
        slots[unused] = Slot::ReadBy(0);
        Some(unused)
    }

    fn part(&self, slot: usize) -> Range<usize> {
        slot * self.slot_bytes..(slot + 1) * self.slot_bytes
    }
}

impl Readers {
    fn add(&mut self, slot: usize) {
        if let Slot::ReadBy(readers) = &mut self.slots[slot] {
            *readers += 1;
        }
    }
}

impl fmt::Debug for LentSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentSlots").field("shape", &self.shape()).finish_non_exhaustive()
    }
}

impl JobShard {
    /// The memory of the slots and how they lie in it; made for the first worker that asks. `None` where only
    /// rows travel, or where there is nothing to lend.
    pub(crate) fn lent_memory(&self) -> io::Result<Option<(&OwnedFd, SlotShape)>> {
        if self.tables.is_some() || self.chunks.is_empty() {
            return Ok(None);
        }
        let slots = match self.lent.get() {
            Some(slots) => slots,
            None => {
                let made =
                    LentSlots::create(self.range().len() as usize * size_of::<f32>(), self.chunks.len())?;
                self.lent.get_or_init(|| made)
            }
        };
        Ok(Some((&slots.memory, slots.shape())))
    }

    /// Values are about to change: from here on they go to a slot, if some are lent and one is free.
    pub(super) fn prepare_change(&self) {
        if let Some(lent) = self.lent.get() {
            lent.prepare();
        }
    }

    /// Lets `change` change the values of a chunk, which is locked, and tells it where they are to go.
    pub(super) fn change<T>(
        &self,
        index: usize,
        chunk: &mut Chunk,
        change: impl FnOnce(&mut Chunk, Option<SlotPart>) -> T,
    ) -> T {
        let Some(lent) = self.lent.get() else { return change(chunk, None) };
        let place = lent.place(index, chunk);
        let changed = change(chunk, place);
        lent.changed(index, chunk);
        changed
    }

    /// Lends a slot with the latest values, to be given back with [`JobShard::give_back`]; `None` while all
    /// are read.
    pub(crate) fn lend(&self) -> Option<u32> {
        self.lent.get()?.lend(&self.chunks)
    }

    /// Connections are about to be cut, which gives back what was lent while it is still read: no slot is
    /// written again.
    pub(crate) fn retire_lent(&self) {
        if let Some(lent) = self.lent.get() {
            lent.retire();
        }
    }

    /// Nobody reads this slot any more whom it was lent to.
    pub(crate) fn give_back(&self, slot: u32) {
        if let Some(lent) = self.lent.get() {
            lent.give_back(slot);
        }
    }
}
