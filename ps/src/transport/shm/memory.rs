//! The memory that both ends map.

use std::{
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64},
    },
};

use super::mapping::{Access, Mapping, Pages, sealed_bytes, sealed_memory, take_pages};

/// Indices of both rings.
const HEAD_BYTES: usize = 4096;
/// Sizes of one ring. The smallest holds more than a chunk, so that a ring that is full holds a whole one.
const RING_BYTES: std::ops::RangeInclusive<usize> = (512 << 10)..=(4 << 20);

/// Which end of the connection uses the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySide {
    /// The end that asked for the memory; it writes to the first ring and reads from the second.
    Client,
    /// The end that made the memory; it writes to the second ring and reads from the first.
    Shard,
}

/// The indices of one ring. Each lies on cache lines of its own (two: they are fetched in pairs), so that the
/// ends do not take them from each other without need.
#[repr(C, align(128))]
pub(super) struct CachePadded<T>(pub T);

#[repr(C)]
pub(super) struct Indices {
    /// Bytes ever written.
    pub head: CachePadded<AtomicU64>,
    /// Bytes ever read.
    pub tail: CachePadded<AtomicU64>,
    /// Bytes that the end that reads waits for while it sleeps, or is about to; 0: it is awake.
    pub reader_sleeps: CachePadded<AtomicU32>,
    pub writer_sleeps: CachePadded<AtomicU32>,
}

/// Mapped memory with two rings, of which only atomics are ever borrowed, and which is otherwise copied from
/// and to by the one reader and the one writer of each ring. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory {
    mapping: Arc<Mapping>,
    ring_bytes: usize,
}

impl Memory {
    /// Makes memory for a connection whose messages have about so many bytes, and takes all its pages: later
    /// there is nothing that could fail.
    pub fn create(message_bytes: u64) -> io::Result<(Self, OwnedFd)> {
        let ring_bytes = ring_bytes(message_bytes);
        let descriptor = sealed_memory(total(ring_bytes))?;
        take_pages(&descriptor, 0..total(ring_bytes))?;
        Ok((Self::map(&descriptor, ring_bytes)?, descriptor))
    }

    /// Maps what the other end made, if it is of a size that we use and cannot shrink under us.
    pub fn open(descriptor: OwnedFd) -> io::Result<Self> {
        let (descriptor, bytes) = sealed_bytes(descriptor)?;
        let rings = bytes.saturating_sub(HEAD_BYTES);
        let ring_bytes = rings / 2;
        if !RING_BYTES.contains(&ring_bytes) || !ring_bytes.is_power_of_two() || rings % 2 != 0 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("{bytes} bytes are no memory for two rings"),
            ));
        }
        Self::map(&descriptor, ring_bytes)
    }

    /// Bytes that [`Memory::create`] takes, with both rings.
    pub fn bytes_for(message_bytes: u64) -> usize {
        total(ring_bytes(message_bytes))
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        total(self.ring_bytes)
    }

    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Indices of the ring that `writer` writes.
    #[expect(unsafe_code, reason = "the indices lie in mapped memory")]
    pub(super) fn indices(&self, writer: MemorySide) -> &Indices {
        let offset = match writer {
            MemorySide::Client => 0,
            MemorySide::Shard => size_of::<Indices>(),
        };
        const {
            assert!(
                2 * size_of::<Indices>() <= HEAD_BYTES && HEAD_BYTES.is_multiple_of(align_of::<Indices>())
            )
        };
        // SAFETY: the mapping begins at a page and is longer than the head, in which both structures lie,
        // aligned. It is mapped as long as `self` lives. They hold atomics only, of which every value
        // is valid, and which another process may change at any time.
        unsafe { self.mapping.base().add(offset).cast().as_ref() }
    }

    /// First byte of the ring that `writer` writes; [`Memory::ring_bytes`] of them follow.
    #[expect(unsafe_code, reason = "the bytes lie in mapped memory")]
    pub(super) fn ring(&self, writer: MemorySide) -> NonNull<u8> {
        let before = match writer {
            MemorySide::Client => 0,
            MemorySide::Shard => self.ring_bytes,
        };
        // SAFETY: the mapping has `HEAD_BYTES` and two times `ring_bytes` behind it.
        unsafe { self.mapping.base().add(HEAD_BYTES + before) }
    }

    fn map(descriptor: &OwnedFd, ring_bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::new(descriptor, 0..total(ring_bytes), Access::Write, Pages::Now)?;
        Ok(Self { mapping: Arc::new(mapping), ring_bytes })
    }
}

fn ring_bytes(message_bytes: u64) -> usize {
    let wished = usize::try_from(message_bytes).unwrap_or(usize::MAX).min(*RING_BYTES.end());
    wished.next_power_of_two().max(*RING_BYTES.start())
}

fn total(ring_bytes: usize) -> usize {
    HEAD_BYTES + 2 * ring_bytes
}
