//! Memory without a file that processes map and nobody can resize.

use std::{
    fs::File,
    io::{self, ErrorKind},
    ops::Range,
    os::fd::OwnedFd,
    ptr::{self, NonNull},
    slice,
};

#[cfg(target_os = "linux")]
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What the kernel maps at once; offsets of a mapping are multiples of it. No system that we run on has
/// larger ones.
pub(crate) const PAGE_BYTES: usize = 64 << 10;

/// A part of shared memory, mapped until it is dropped. Only pointers lead into it: another process may write
/// there at any time, and whoever reads or writes says why that is sound.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

/// What a mapping may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Whether all pages are there when a mapping is made, or each when it is touched first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    Now,
    WhenTouched,
}

// SAFETY: a mapping is an address and a length, and belongs to no thread.
#[expect(unsafe_code, reason = "a mapping belongs to no thread")]
unsafe impl Send for Mapping {}
// SAFETY: as above; what is read and written through the pointer is its users' care.
#[expect(unsafe_code, reason = "a mapping belongs to no thread")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `part` of the memory, which has to be a whole number of [`PAGE_BYTES`] away from its start, and
    /// within its length.
    #[expect(unsafe_code, reason = "the standard library maps no memory")]
    pub(crate) fn new(
        memory: &OwnedFd,
        part: Range<usize>,
        access: Access,
        pages: Pages,
    ) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let populate = if pages == Pages::Now { POPULATE } else { MapFlags::empty() };
        let (offset, bytes) = (part.start as u64, part.len());
        // SAFETY: a new mapping at an address that the kernel picks touches nothing that is there.
        let base =
            unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED | populate, memory, offset)? };
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Its first byte; [`Mapping::bytes`] of them are mapped as long as `self` lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// `elements` floats from byte `at` on.
    ///
    /// # Safety
    /// The memory keeps its size as long as the slice lives, and nobody writes there, or nothing but numbers
    /// depends on it.
    ///
    /// # Panics
    /// If the mapping does not have them, or `at` is no multiple of four.
    #[expect(unsafe_code, reason = "mapped memory is read through a pointer")]
    pub(crate) unsafe fn floats(&self, at: usize, elements: usize) -> &[f32] {
        let end = elements.checked_mul(size_of::<f32>()).and_then(|bytes| bytes.checked_add(at));
        assert!(
            at.is_multiple_of(align_of::<f32>()) && end.is_some_and(|end| end <= self.bytes),
            "floats lie within the mapping"
        );
        // SAFETY: the mapping begins at a page, and they lie within it, aligned; every bit pattern is a
        // float. The caller has promised the rest.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(at).cast(), elements) }
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "the standard library maps no memory")]
    fn drop(&mut self) {
        // SAFETY: this is what `new` got, of the same length, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Bytes of memory that the other end made, if it cannot shrink under us.
pub(crate) fn sealed_bytes(memory: OwnedFd) -> io::Result<(OwnedFd, usize)> {
    require_seals(&memory)?;
    let file = File::from(memory);
    let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    Ok((file.into(), bytes))
}

#[cfg(target_os = "linux")]
const POPULATE: MapFlags = MapFlags::POPULATE;
#[cfg(not(target_os = "linux"))]
const POPULATE: MapFlags = MapFlags::empty();

/// Nobody may make it smaller, which would kill who reads it, or larger, or take a seal off.
#[cfg(target_os = "linux")]
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes memory of a size that stays. It has no pages yet, see [`take_pages`].
#[cfg(target_os = "linux")]
pub(crate) fn sealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    let memory = unsealed_memory(bytes)?;
    fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// The same, mapped: nobody else can map it for writing, where the kernel knows such a seal (Linux 5.1).
#[cfg(target_os = "linux")]
pub(crate) fn readable_memory(bytes: usize) -> io::Result<(OwnedFd, Mapping)> {
    let memory = unsealed_memory(bytes)?;
    let mapping = Mapping::new(&memory, 0..bytes, Access::Write, Pages::WhenTouched)?;
    if fcntl_add_seals(&memory, SEALS | SealFlags::FUTURE_WRITE).is_err() {
        fcntl_add_seals(&memory, SEALS)?;
    }
    Ok((memory, mapping))
}

#[cfg(target_os = "linux")]
fn unsealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    let memory = memfd_create(c"syncline", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, bytes as u64)?;
    Ok(memory)
}

/// Takes the pages of a part: memory that is short is an error here, and not a signal when they are touched.
#[cfg(target_os = "linux")]
pub(crate) fn take_pages(memory: &OwnedFd, part: Range<usize>) -> io::Result<()> {
    Ok(fallocate(memory, FallocateFlags::empty(), part.start as u64, part.len() as u64)?)
}

#[cfg(target_os = "linux")]
fn require_seals(memory: &OwnedFd) -> io::Result<()> {
    if fcntl_get_seals(memory)?.contains(SEALS) {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidData, "the memory that was handed over can change its size"))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn sealed_memory(_: usize) -> io::Result<OwnedFd> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn readable_memory(_: usize) -> io::Result<(OwnedFd, Mapping)> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn take_pages(_: &OwnedFd, _: Range<usize>) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn require_seals(_: &OwnedFd) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_can_be_read_by_others_and_written_by_its_maker_alone() {
        let bytes = 2 * PAGE_BYTES;
        let (memory, ours) = readable_memory(bytes).unwrap();
        take_pages(&memory, PAGE_BYTES..bytes).unwrap();
        let (memory, found) = sealed_bytes(memory).unwrap();
        assert_eq!((found, ours.bytes()), (bytes, bytes));
        assert!(Mapping::new(&memory, 0..bytes, Access::Write, Pages::WhenTouched).is_err());
        let others = Mapping::new(&memory, 0..bytes, Access::Read, Pages::WhenTouched).unwrap();
        #[expect(unsafe_code, reason = "mapped memory is read and written through pointers")]
        // SAFETY: both map as many bytes, and nobody else does.
        unsafe {
            ours.base().add(PAGE_BYTES).write(7);
            assert_eq!(others.base().add(PAGE_BYTES).read(), 7);
        }
    }
}
