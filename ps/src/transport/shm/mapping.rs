//! Memory without a file that processes map and nobody can resize.

use std::{
    fs::File,
    io::{self, ErrorKind},
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
};

/// What the kernel maps at once; offsets of a mapping are multiples of it. No system that we run on has larger ones.
pub(crate) const PAGE_BYTES: usize = 64 << 10;

/// A part of shared memory, mapped until it is dropped. Only pointers lead into it: another process may write there at any
/// time, and whoever reads or writes says why that is sound.
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
    /// Maps `part` of the memory, which has to be a whole number of [`PAGE_BYTES`] away from its start, and within its length.
    #[expect(unsafe_code, reason = "the standard library maps no memory")]
    pub(crate) fn new(
        memory: &OwnedFd,
        part: Range<usize>,
        access: Access,
        pages: Pages,
    ) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let populate = if pages == Pages::Now { POPULATE } else { 0 };
        let offset = libc::off_t::try_from(part.start).map_err(io::Error::other)?;
        let bytes = part.len();
        // SAFETY: a new mapping at an address that the kernel picks touches nothing that is there.
        let base = unsafe {
            let flags = libc::MAP_SHARED | populate;
            libc::mmap(ptr::null_mut(), bytes, protection, flags, memory.as_raw_fd(), offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
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
    /// The memory keeps its size as long as the slice lives, and nobody writes there, or nothing but numbers hangs on it.
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
        // SAFETY: the mapping begins at a page, and they lie within it, aligned; every bit pattern is a float. The caller has
        // promised the rest.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(at).cast(), elements) }
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "the standard library maps no memory")]
    fn drop(&mut self) {
        // SAFETY: this is what `new` got, of the same length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
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
const POPULATE: libc::c_int = libc::MAP_POPULATE;
#[cfg(not(target_os = "linux"))]
const POPULATE: libc::c_int = 0;

/// Nobody may make it smaller, which would kill who reads it, or larger, or take a seal off.
#[cfg(target_os = "linux")]
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Makes memory of a size that stays. It has no pages yet, see [`take_pages`].
#[cfg(target_os = "linux")]
pub(crate) fn sealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    let memory = unsealed_memory(bytes)?;
    add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// The same, mapped: nobody else can map it for writing, where the kernel knows such a seal (Linux 5.1).
#[cfg(target_os = "linux")]
pub(crate) fn readable_memory(bytes: usize) -> io::Result<(OwnedFd, Mapping)> {
    let memory = unsealed_memory(bytes)?;
    let mapping = Mapping::new(&memory, 0..bytes, Access::Write, Pages::WhenTouched)?;
    if add_seals(&memory, SEALS | libc::F_SEAL_FUTURE_WRITE).is_err() {
        add_seals(&memory, SEALS)?;
    }
    Ok((memory, mapping))
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library knows no seals")]
fn add_seals(memory: &OwnedFd, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) })
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library makes no memory that can be shared")]
fn unsealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that lives as long as the program.
    let memory =
        unsafe { libc::memfd_create(c"syncline".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    check(memory)?;
    // SAFETY: the descriptor is new, and nobody else has it.
    let memory = unsafe { OwnedFd::from_raw_fd(memory) };
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: a plain call on an open descriptor.
    check(unsafe { libc::ftruncate(memory.as_raw_fd(), length) })?;
    Ok(memory)
}

/// Takes the pages of a part: memory that is short is an error here, and not a signal when they are touched.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library takes no pages")]
pub(crate) fn take_pages(memory: &OwnedFd, part: Range<usize>) -> io::Result<()> {
    let number = |bytes: usize| libc::off_t::try_from(bytes).map_err(io::Error::other);
    let (start, length) = (number(part.start)?, number(part.len())?);
    // SAFETY: a plain call on an open descriptor.
    check(unsafe { libc::fallocate(memory.as_raw_fd(), 0, start, length) })
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library knows no seals")]
fn require_seals(memory: &OwnedFd) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
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
