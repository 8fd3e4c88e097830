//! One direction: the end that writes and the end that reads. Nothing here waits.

use std::{
    io, ptr,
    sync::atomic::{AtomicU32, Ordering, fence},
};

use super::memory::{Memory, MemorySide};

/// Bytes after which the other end is told: it works on the first while we copy the next.
const PIECE_BYTES: usize = 64 << 10;

/// The end of a ring that writes.
pub(super) struct RingWriter {
    memory: Memory,
    end: MemorySide,
    /// Bytes ever written. Ours alone: what the memory says is for the other end.
    head: u64,
}

/// The end of a ring that reads.
pub(super) struct RingReader {
    memory: Memory,
    /// The end that writes.
    from: MemorySide,
    /// Bytes ever read.
    tail: u64,
}

impl RingWriter {
    pub(super) fn new(memory: Memory, end: MemorySide) -> Self {
        Self { memory, end, head: 0 }
    }

    /// Bytes that fit now.
    pub(super) fn room(&self) -> io::Result<usize> {
        let tail = self.memory.indices(self.end).tail.0.load(Ordering::Acquire);
        let used = distance(self.head, tail, self.memory.ring_bytes())?;
        Ok(self.memory.ring_bytes() - used)
    }

    /// To be set to 1 while this end sleeps.
    pub(super) fn sleeps(&self) -> &AtomicU32 {
        &self.memory.indices(self.end).writer_sleeps.0
    }

    /// Writes what fits now, possibly nothing. `wake` is called when the other end sleeps and as much is
    /// there as it waits for.
    pub(super) fn write(&mut self, bytes: &[u8], wake: &impl Fn()) -> io::Result<usize> {
        let room = self.room()?;
        for piece in bytes[..bytes.len().min(room)].chunks(PIECE_BYTES) {
            self.copy_in(piece);
            self.head += piece.len() as u64;
            let indices = self.memory.indices(self.end);
            indices.head.0.store(self.head, Ordering::Release);
            let there = self.memory.ring_bytes() - self.room()?;
            wake_if_asleep(&indices.reader_sleeps.0, there, wake);
        }
        Ok(bytes.len().min(room))
    }

    #[expect(unsafe_code, reason = "the ring lies in memory that another process maps")]
    fn copy_in(&mut self, bytes: &[u8]) {
        let (size, ring) = (self.memory.ring_bytes(), self.memory.ring(self.end).as_ptr());
        let at = (self.head % size as u64) as usize;
        let first = bytes.len().min(size - at);
        // SAFETY: `at + first` is at most `size`, and the rest is no longer than `size - first` because
        // `room` was; both stay inside the ring, which no slice of ours overlaps. No reference to the
        // ring exists: a peer that reads it meanwhile, against the protocol, gets bytes of its own
        // connection in some order.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), ring.add(at), first);
            ptr::copy_nonoverlapping(bytes.as_ptr().add(first), ring, bytes.len() - first);
        }
    }
}

impl RingReader {
    pub(super) fn new(memory: Memory, from: MemorySide) -> Self {
        Self { memory, from, tail: 0 }
    }

    /// Bytes that can be read now.
    pub(super) fn available(&self) -> io::Result<usize> {
        let head = self.memory.indices(self.from).head.0.load(Ordering::Acquire);
        distance(head, self.tail, self.memory.ring_bytes())
    }

    /// To be set to the bytes that this end waits for while it sleeps.
    pub(super) fn sleeps(&self) -> &AtomicU32 {
        &self.memory.indices(self.from).reader_sleeps.0
    }

    /// Reads what is there, possibly nothing. `wake` is called when the other end sleeps and half of the ring
    /// is free: less would be full again at once.
    pub(super) fn read(&mut self, into: &mut [u8], wake: &impl Fn()) -> io::Result<usize> {
        let available = self.available()?;
        let count = into.len().min(available);
        for piece in into[..count].chunks_mut(PIECE_BYTES) {
            self.copy_out(piece);
            self.tail += piece.len() as u64;
            self.memory.indices(self.from).tail.0.store(self.tail, Ordering::Release);
        }
        if count > 0 && (available - count) <= self.memory.ring_bytes() / 2 {
            wake_if_asleep(&self.memory.indices(self.from).writer_sleeps.0, 1, wake);
        }
        Ok(count)
    }

    #[expect(unsafe_code, reason = "the ring lies in memory that another process maps")]
    fn copy_out(&mut self, into: &mut [u8]) {
        let (size, ring) = (self.memory.ring_bytes(), self.memory.ring(self.from).as_ptr());
        let at = (self.tail % size as u64) as usize;
        let first = into.len().min(size - at);
        // SAFETY: as in `copy_in`; `available` was checked against the ring's size. The bytes come by a plain
        // copy from raw memory of which nothing is assumed: a peer that keeps to the protocol does
        // not touch them until `tail` has moved, and one that writes to them meanwhile changes what
        // its own message says. They are judged where they are then, in `into`, which it cannot
        // reach.
        unsafe {
            ptr::copy_nonoverlapping(ring.add(at), into.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(ring, into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

/// Bytes between two indices, if a ring of this size can hold them.
fn distance(head: u64, tail: u64, size: usize) -> io::Result<usize> {
    match head.checked_sub(tail).map(usize::try_from) {
        Some(Ok(bytes)) if bytes <= size => Ok(bytes),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("[E438] the other end of shared memory says {head} written and {tail} read"),
        )),
    }
}

/// The other half of what an end does that goes to sleep, see the module's text. It is woken if it waits for
/// `there` or less.
fn wake_if_asleep(sleeps: &AtomicU32, there: usize, wake: &impl Fn()) {
    fence(Ordering::SeqCst);
    let wanted = sleeps.load(Ordering::Relaxed) as usize;
    if wanted != 0 && wanted <= there && sleeps.swap(0, Ordering::Relaxed) != 0 {
        wake();
    }
}
