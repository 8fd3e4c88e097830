//! The few functions of the CUDA runtime that ONNX Runtime does not wrap, looked up in the library that it
//! uses itself.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Any context of the process may use it.
const PORTABLE: c_uint = 1;
/// The device reads, and the mapping need not be writable. Not every machine can.
const READ_ONLY: c_uint = 8;

/// Declared as in `cuda_runtime_api.h`. A result of 0 is success.
#[derive(Debug, Clone, Copy)]
pub(super) struct CudaCalls {
    pub set_device: unsafe extern "C" fn(c_int) -> c_int,
    pub register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int,
    pub unregister: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub take_last_error: unsafe extern "C" fn() -> c_int,
    pub error_text: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl CudaCalls {
    /// Those of the CUDA runtime among `preloaded` libraries.
    pub(super) fn find(preloaded: &[PathBuf]) -> Option<Self> {
        let is_runtime = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcudart.so"))
        };
        Self::open(preloaded.iter().find(is_runtime)?).ok()
    }

    #[expect(unsafe_code, reason = "functions of a library that is known at run time only")]
    fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: it is loaded already, so that nothing of it runs now.
        let library = unsafe { Library::new(path)? };
        // It stays loaded as long as the process, as those that were preloaded do: the pointers stay good.
        let library = ManuallyDrop::new(library);
        // SAFETY: the types are those of NVIDIA's header, the same since CUDA 11.1.
        unsafe {
            Ok(Self {
                set_device: *library.get(b"cudaSetDevice\0")?,
                register: *library.get(b"cudaHostRegister\0")?,
                unregister: *library.get(b"cudaHostUnregister\0")?,
                take_last_error: *library.get(b"cudaGetLastError\0")?,
                error_text: *library.get(b"cudaGetErrorString\0")?,
            })
        }
    }

    /// Locks pages for the GPU of this number.
    ///
    /// # Safety
    /// The bytes are mapped, and stay so until they are unregistered.
    #[expect(unsafe_code, reason = "CUDA is called through pointers")]
    pub(super) unsafe fn lock(
        self,
        gpu: u8,
        first: *mut u8,
        bytes: usize,
        writable: bool,
    ) -> Result<(), String> {
        let flags = if writable { PORTABLE } else { PORTABLE | READ_ONLY };
        // SAFETY: a plain call; ONNX Runtime makes the same one on this thread.
        self.check(unsafe { (self.set_device)(c_int::from(gpu)) })?;
        // SAFETY: the caller's promise. The pages are pinned where they are, and nothing is read or written.
        self.check(unsafe { (self.register)(first.cast(), bytes, flags) })
    }

    /// The reverse of [`CudaCalls::lock`]. What fails is left alone: the driver lets go of the pages when the
    /// process ends.
    ///
    /// # Safety
    /// These bytes were locked, and are mapped.
    #[expect(unsafe_code, reason = "CUDA is called through pointers")]
    pub(super) unsafe fn unlock(self, gpu: u8, first: *mut u8) {
        // SAFETY: as in `lock`. CUDA waits for copies that are under way.
        let unlocked = self
            .check(unsafe { (self.set_device)(c_int::from(gpu)) })
            .and_then(|()| self.check(unsafe { (self.unregister)(first.cast()) }));
        if let Err(error) = unlocked {
            tracing::warn!(%error, "pages stay locked for the GPU");
        }
    }

    #[expect(unsafe_code, reason = "CUDA is called through pointers")]
    fn check(self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: plain calls. A text belongs to the library. The error is taken off the thread, where ONNX
        // Runtime would find it behind its next kernel and think it that kernel's.
        let text = unsafe {
            (self.take_last_error)();
            CStr::from_ptr((self.error_text)(code))
        };
        Err(format!("{} (CUDA error {code})", text.to_string_lossy()))
    }
}
