//! The memory that both ends map.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64},
    },
};

/// Indices of both rings.
const HEAD_BYTES: usize = 4096;
/// Sizes of one ring. The smallest holds more than a chunk, so that a ring that is full holds a whole one.
const RING_BYTES: std::ops::RangeInclusive<usize> = (512 << 10)..=(4 << 20);

/// Which end of the connection uses the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySide {
    Client,
    Shard,
}

/// The indices of one ring. Each lies on cache lines of its own (two: they are fetched in pairs), so that the ends do not
/// take them from each other without need.
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

/// Mapped memory with two rings. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Mapping>);

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    ring_bytes: usize,
}

// SAFETY: the pointer is to memory of which only atomics are ever borrowed, and which is otherwise copied from and to by the
// one reader and the one writer of each ring.
#[expect(unsafe_code, reason = "a mapping belongs to no thread")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a mapping belongs to no thread")]
unsafe impl Sync for Mapping {}

impl Memory {
    /// Makes memory for a connection whose messages have about so many bytes, and takes all its pages: later there is
    /// nothing that could fail.
    pub fn create(message_bytes: u64) -> io::Result<(Self, OwnedFd)> {
        let ring_bytes = ring_bytes(message_bytes);
        let descriptor = sealed_memory(total(ring_bytes))?;
        Ok((Self::map(&descriptor, ring_bytes)?, descriptor))
    }

    /// Maps what the other end made, if it is of a size that we use and cannot shrink under us.
    pub fn open(descriptor: OwnedFd) -> io::Result<Self> {
        require_seals(&descriptor)?;
        let file = File::from(descriptor);
        let bytes = file.metadata()?.len();
        let rings = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(HEAD_BYTES);
        let ring_bytes = rings / 2;
        if !RING_BYTES.contains(&ring_bytes) || !ring_bytes.is_power_of_two() || rings % 2 != 0 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("{bytes} bytes are no memory for two rings"),
            ));
        }
        Self::map(&file.into(), ring_bytes)
    }

    /// Bytes that [`Memory::create`] takes, with both rings.
    pub fn bytes_for(message_bytes: u64) -> usize {
        total(ring_bytes(message_bytes))
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        total(self.0.ring_bytes)
    }

    pub(super) fn ring_bytes(&self) -> usize {
        self.0.ring_bytes
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
        // SAFETY: the mapping begins at a page and is longer than the head, in which both structures lie, aligned. It is
        // mapped as long as `self` lives. They hold atomics only, of which every value is valid, and which another
        // process may change at any time.
        unsafe { self.0.base.add(offset).cast().as_ref() }
    }

    /// First byte of the ring that `writer` writes; [`Memory::ring_bytes`] of them follow.
    #[expect(unsafe_code, reason = "the bytes lie in mapped memory")]
    pub(super) fn ring(&self, writer: MemorySide) -> NonNull<u8> {
        let before = match writer {
            MemorySide::Client => 0,
            MemorySide::Shard => self.0.ring_bytes,
        };
        // SAFETY: the mapping has `HEAD_BYTES` and two times `ring_bytes` behind it.
        unsafe { self.0.base.add(HEAD_BYTES + before) }
    }

    #[expect(unsafe_code, reason = "the standard library maps no memory")]
    fn map(descriptor: &OwnedFd, ring_bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | POPULATE);
        // SAFETY: a new mapping at an address that the kernel picks touches nothing that is there.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), total(ring_bytes), access, flags, descriptor.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self(Arc::new(Mapping { base, ring_bytes })))
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "the standard library maps no memory")]
    fn drop(&mut self) {
        // SAFETY: this is what `map` got, of the same length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), total(self.ring_bytes)) };
    }
}

fn ring_bytes(message_bytes: u64) -> usize {
    let wished = usize::try_from(message_bytes).unwrap_or(usize::MAX).min(*RING_BYTES.end());
    wished.next_power_of_two().max(*RING_BYTES.start())
}

fn total(ring_bytes: usize) -> usize {
    HEAD_BYTES + 2 * ring_bytes
}

#[cfg(target_os = "linux")]
const POPULATE: libc::c_int = libc::MAP_POPULATE;
#[cfg(not(target_os = "linux"))]
const POPULATE: libc::c_int = 0;

/// Nobody may make it smaller, which would kill who reads it, or larger, or take a seal off.
#[cfg(target_os = "linux")]
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library makes no memory that can be shared")]
fn sealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that lives as long as the program.
    let descriptor =
        unsafe { libc::memfd_create(c"syncline".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    check(descriptor)?;
    // SAFETY: the descriptor is new, and nobody else has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: plain calls on an open descriptor. The second takes the pages: memory that is short is an error here, and
    // not a signal when they are touched.
    check(unsafe { libc::ftruncate(descriptor.as_raw_fd(), length) })?;
    // SAFETY: as above.
    check(unsafe { libc::fallocate(descriptor.as_raw_fd(), 0, 0, length) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(descriptor)
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library knows no seals")]
fn require_seals(descriptor: &OwnedFd) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
    check(seals)?;
    if seals & SEALS == SEALS {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidData, "the memory that was handed over can change its size"))
}

#[cfg(target_os = "linux")]
fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
fn sealed_memory(_: usize) -> io::Result<OwnedFd> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn require_seals(_: &OwnedFd) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
