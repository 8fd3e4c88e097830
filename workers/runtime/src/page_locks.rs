//! Memory that a GPU reads and writes by itself, although this process has it from elsewhere.
//!
//! What is copied between page-locked memory and a GPU no processor touches, and goes at the full speed of
//! the bus. ONNX Runtime allocates such memory; to get there, values from a mapping that is shared with
//! others have to be copied once. With its pages locked, a mapping is as good. Costs some milliseconds for
//! 100 MB, once, and the pages stay in memory meanwhile.

use std::{
    fmt::Debug,
    mem::size_of_val,
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use syncline_kit::Device;

use crate::{cuda_calls::CudaCalls, error::BackendError, runtime::Runtime};

/// Memory whose pages may be locked.
///
/// # Safety
/// The bytes from `base` on are mapped, the same for the whole life of the value.
#[expect(unsafe_code, reason = "a GPU reads and writes through a pointer that no borrow protects")]
pub unsafe trait HostMemory: Debug + Send + Sync {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// How many there are.
    fn bytes(&self) -> usize;
    /// Whether this process may write there.
    fn is_writable(&self) -> bool;
}

/// What is locked in this process for one GPU.
#[derive(Debug)]
pub(super) struct PageLocks {
    calls: CudaCalls,
    gpu: u8,
    locked: Mutex<Vec<Range<usize>>>,
}

/// Pages of some memory, locked until this is dropped.
#[derive(Debug)]
pub struct PageLock {
    locks: Arc<PageLocks>,
    memory: Arc<dyn HostMemory>,
}

impl PageLocks {
    pub(super) fn new(calls: CudaCalls, gpu: u8) -> Self {
        Self { calls, gpu, locked: Mutex::default() }
    }

    /// Whether the GPU reads these numbers where they lie.
    pub(super) fn hold(&self, numbers: &[f32]) -> bool {
        let first = numbers.as_ptr().addr();
        let end = first + size_of_val(numbers);
        let holds = |range: &Range<usize>| range.start <= first && end <= range.end;
        self.ranges(|locked| locked.iter().any(holds))
    }

    fn ranges<T>(&self, look: impl FnOnce(&mut Vec<Range<usize>>) -> T) -> T {
        look(&mut self.locked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Runtime {
    /// Has the GPU that this was loaded for read `memory`, and write it, by itself: inputs of models from
    /// there are not copied by the processor any more, as long as the result lives.
    ///
    /// # Errors
    /// E497 where CUDA refuses, or there is no GPU: inputs go the longer way.
    #[expect(unsafe_code, reason = "CUDA is called through pointers")]
    #[doc(hidden)]
    pub fn lock_pages(&self, memory: Arc<dyn HostMemory>) -> Result<PageLock, BackendError> {
        let refused = |reason: String| BackendError::PagesNotLocked { bytes: memory.bytes(), reason };
        let Some(locks) = self.page_locks() else {
            return Err(refused(match self.device() {
                Device::Cpu => "no GPU is used".to_owned(),
                Device::Cuda(_) => "the CUDA runtime is not at hand".to_owned(),
            }));
        };
        let (first, bytes) = (memory.base().as_ptr(), memory.bytes());
        // SAFETY: the memory is mapped as long as the lock that holds it, which unlocks it first.
        let locked = unsafe { locks.calls.lock(locks.gpu, first, bytes, memory.is_writable()) };
        locked.map_err(refused)?;
        locks.ranges(|ranges| ranges.push(first.addr()..first.addr() + bytes));
        Ok(PageLock { locks: locks.clone(), memory })
    }
}

impl Drop for PageLock {
    #[expect(unsafe_code, reason = "CUDA is called through pointers")]
    fn drop(&mut self) {
        let first = self.memory.base().as_ptr();
        self.locks.ranges(|ranges| ranges.retain(|range| range.start != first.addr()));
        // SAFETY: it was locked when this was made, and is mapped as long as `memory` is here.
        unsafe { self.locks.calls.unlock(self.locks.gpu, first) };
    }
}

#[cfg(test)]
pub(super) mod tests;
